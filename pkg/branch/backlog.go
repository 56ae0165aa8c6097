// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/window"
)

// entry is one write that is to come onto the remote. Pool.mu guards it, but for
// what only the session that it is in uses.
type entry struct {
	// sequence orders all entries by arrival.
	sequence uint64
	write    window.Write
	// pushing: it is in the session that runs now.
	pushing bool
	// refused: the remote turned down this very commit. It stays in its place, but
	// stops nobody else.
	refused bool
	// dropped: its target was suspended while it was being pushed.
	dropped bool
	// sought: its target was suspended when a commit that had been made of it could be on
	// the remote. It is looked for there, and not made again (W16, W18).
	sought bool

	// destination is where the session sends it.
	destination destination
	// attempts are the commits that were made of it. Any of them may be on the remote
	// although the answer that says so was lost (G5, D2).
	attempts []recovery.Attempt
	// settled: it changes nothing in Git and its request has been told so (W15). A
	// replay must not turn it into a commit after that.
	settled bool
	// unsaved are the files that could not be edited, as the last session found.
	unsaved []error
	// skip are the paths that cannot be written, as building the commit showed: they
	// must not keep back the others.
	skip map[string]error
}

// backlog holds the entries of one target in the order in which their windows
// closed. Order counts within a target only: no two targets that can be written to
// share a path.
type backlog struct {
	entries []*entry
	// route is where they go; for a deleted target where they went last.
	route  destination
	routed bool
	// failure is why the last session left entries behind.
	failure string
}

// overtaken says whether a later entry that is not refused is about an object of this
// one: it gets one more chance right before, or what it has of that object would never
// be committed (see supersede).
func (b *backlog) overtaken(e *entry) bool {
	objects := map[window.Object]bool{}
	for _, c := range e.write.Changes {
		objects[c.Object] = true
	}
	return slices.ContainsFunc(b.entries, func(later *entry) bool {
		return later.sequence > e.sequence && !later.refused &&
			slices.ContainsFunc(later.write.Changes, func(c window.Change) bool { return objects[c.Object] })
	})
}

// backlog returns the target's. Caller must hold mu.
func (p *Pool) backlog(target types.NamespacedName) *backlog {
	b := p.backlogs[target]
	if b == nil {
		b = &backlog{}
		p.backlogs[target] = b
	}
	return b
}

// enqueue adds a write behind all others of its target. Caller must hold mu.
func (p *Pool) enqueue(write window.Write) {
	b := p.backlog(write.Target)
	p.sequence++
	b.entries = append(b.entries, &entry{sequence: p.sequence, write: write})
	p.dispatch(write.Target)
}

// dispatch has the target's entries pushed by the worker of its branch as it is
// now. Caller must hold mu.
func (p *Pool) dispatch(target types.NamespacedName) {
	b := p.backlogs[target]
	if b == nil || len(b.entries) == 0 {
		return
	}
	if d, ok := p.resolve(target, b); ok {
		p.start(p.worker(d.remote))
	}
}

// resolve finds where a target's entries go now, or tells their requests why they
// have to wait. Caller must hold mu.
func (p *Pool) resolve(target types.NamespacedName, b *backlog) (destination, bool) {
	d, err := p.destinations.resolve(target)
	if known := p.targets[target]; known != nil && apierrors.IsNotFound(err) {
		d, err = p.destinations.resolveTarget(known) // the informer is behind
	}
	switch {
	case err == nil:
		b.route, b.routed = d, true
		return d, true
	case (apierrors.IsNotFound(err) || providerGone(err) && p.deleting(target)) && b.routed:
		return b.route, true
	case apierrors.IsNotFound(err), providerGone(err) && p.deleting(target):
		for _, e := range b.entries {
			p.tell(e, v1alpha1.ReasonTargetDeleted, "")
			p.journal.Over(e.write, false)
		}
		b.entries = nil
		return destination{}, false
	}
	klog.FromContext(p.ctx).V(2).Info("Closed windows have to wait", "target", target, "windows", len(b.entries), "err", err)
	b.failure = err.Error()
	for _, e := range b.entries {
		if !e.pushing && !e.refused {
			p.tell(e, v1alpha1.ReasonWaitingForPush, err.Error())
		}
	}
	return destination{}, false
}

// retry has everything of the matching targets tried again now: something changed
// that may have been in the way. Caller must hold mu.
func (p *Pool) retry(matches func(types.NamespacedName) bool) {
	for target, b := range p.backlogs {
		if !matches(target) {
			continue
		}
		for _, e := range b.entries {
			e.refused = false
		}
		if b.routed {
			p.worker(b.route.remote).forgive(b.route.repository)
		}
		p.dispatch(target)
	}
}

// take starts a session: the entries of all targets of the branch that share one
// repository, none of whose earlier entries is in a session still. It returns how
// long to wait when there are entries, but only of repositories that have to be
// left alone for now; 0 when there are none. Caller must hold mu.
func (p *Pool) take(w *worker, now time.Time) (batch []*entry, repository *git.Repository, wait time.Duration) {
	type candidate struct {
		target  types.NamespacedName
		entries []*entry
	}
	var candidates []candidate
	for target, b := range p.backlogs {
		var ready []*entry
		for _, e := range b.entries {
			if e.pushing {
				ready = nil
				break
			}
			if !e.refused || b.overtaken(e) {
				ready = append(ready, e)
			}
		}
		if len(ready) > 0 {
			candidates = append(candidates, candidate{target, ready})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.entries[0].sequence, b.entries[0].sequence) })
	for _, c := range candidates {
		d, ok := p.resolve(c.target, p.backlogs[c.target])
		if !ok {
			continue
		}
		if d.remote != w.remote {
			// One that runs was told, or looks again when its session ends.
			if other := p.worker(d.remote); !other.running {
				p.start(other)
			}
			continue
		}
		until := w.failures[d.repository].until
		if next := p.paced[d.repository]; next.After(until) {
			until = next
		}
		if left := until.Sub(now); left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		delete(p.paced, d.repository)
		if repository == nil {
			repository = d.repository
		}
		if d.repository != repository {
			continue // the next session's
		}
		for _, e := range c.entries {
			e.pushing, e.destination, e.unsaved = true, d, nil
			batch = append(batch, e)
		}
	}
	if len(batch) > 0 {
		wait = 0
		if interval := batch[0].destination.interval; interval > 0 {
			p.paced[repository] = now.Add(interval)
		}
	}
	return batch, repository, wait
}

// settle ends a session by what became of each entry. Caller must hold mu.
func (p *Pool) settle(w *worker, repository *git.Repository, results []result) {
	for _, r := range results {
		e := r.entry
		e.pushing = false
		switch {
		case r.tried && r.err == nil:
			if _, failed := w.failures[repository]; failed {
				delete(w.failures, repository)
				p.readiness.checkProvider(e.destination.provider)
			}
			p.complete(w, e, r.built)
			continue
		case e.dropped && (len(e.attempts) == 0 || concernsOne(r.err)):
			p.drop(e) // nothing was sent, or the remote itself has said no
			continue
		case e.dropped:
			e.dropped, e.sought = false, true
		}
		if !r.tried {
			continue
		}
		p.failed(w, repository, e, r.err)
	}
	for _, r := range results {
		target := r.entry.write.Target
		if p.deleting(target) {
			p.readiness.check(target)
		}
		if b := p.backlogs[target]; b != nil && len(b.entries) == 0 {
			delete(p.backlogs, target)
		} else if b != nil {
			// Its branch may be another one by now.
			if d, ok := p.resolve(target, b); ok && d.remote != w.remote {
				p.start(p.worker(d.remote))
			}
		}
	}
}

// failed keeps an entry and says why it is not on the remote. Caller must hold mu.
func (p *Pool) failed(w *worker, repository *git.Repository, e *entry, err error) {
	var (
		refused      *git.RefusedError
		unsupported  *git.UnsupportedError
		unauthorized *git.UnauthorizedError
		unreachable  *git.UnreachableError
	)
	p.backlog(e.write.Target).failure = err.Error()
	switch {
	case p.hopeless(e.write.Target, err):
		klog.FromContext(p.ctx).Error(err, "A deleted GitTarget's changes cannot be pushed any more", "target", e.write.Target, "window", e.write.Name, "author", e.write.Author.Username)
		p.tell(e, v1alpha1.ReasonTargetDeleted, err.Error())
		p.remove(e)
	case errors.As(err, &refused):
		p.tell(e, v1alpha1.ReasonRemoteRejected, refused.Text)
		p.setAside(w, e)
	case errors.As(err, &unsupported):
		p.tell(e, v1alpha1.ReasonRemoteRejected, unsupported.Error())
		p.setAside(w, e)
	case errors.As(err, &unauthorized):
		p.tell(e, v1alpha1.ReasonAuthenticationFailed, err.Error())
		w.fail(repository, 0)
	case secretAtFault(err):
		p.tell(e, v1alpha1.ReasonAuthenticationFailed, err.Error())
		w.fail(repository, 0)
		p.readiness.checkProvider(e.destination.provider)
	case errors.As(err, &unreachable):
		p.tell(e, v1alpha1.ReasonWaitingForPush, err.Error())
		w.fail(repository, unreachable.RetryAfter)
	default:
		p.tell(e, v1alpha1.ReasonWaitingForPush, err.Error())
		w.fail(repository, 0)
	}
}

// setAside leaves a refused entry to the slow timer, unless its target has moved
// away from what refused it meanwhile. Caller must hold mu.
func (p *Pool) setAside(w *worker, e *entry) {
	if route := p.backlog(e.write.Target).route; route.remote == e.destination.remote && route.repository == e.destination.repository {
		e.refused = true
		p.startSlowTimer(w)
	}
}

// complete takes an entry out of the backlog: its commit is on the remote, or it
// changes nothing there, or it can never be built. Caller must hold mu.
func (p *Pool) complete(w *worker, e *entry, built git.Built) {
	if built.Err != nil && e.skipPath(built.Err) {
		return // the next session makes it without that path
	}
	if e.sought && built.Hash == "" {
		p.drop(e)
		return
	}
	defer p.remove(e)
	if built.Err != nil {
		klog.FromContext(p.ctx).Error(built.Err, "A commit cannot be built", "target", e.write.Target, "window", e.write.Name, "author", e.write.Author.Username)
		p.tell(e, v1alpha1.ReasonCommitFailed, built.Err.Error())
		return
	}
	p.supersede(e)
	if e.settled {
		return
	}
	// A commit that was found on the remote comes without what it was made of.
	changed, unsaved := built.Changed, texts(e.unsaved)
	if i := e.attempt(built.Hash); i >= 0 {
		changed, unsaved = e.attempts[i].Changed, e.attempts[i].Unsaved
	}
	message := ""
	if len(unsaved) > 0 {
		why := errors.New(strings.Join(unsaved, "\n"))
		message = "not saved: " + why.Error()
		klog.FromContext(p.ctx).Error(why, "Files cannot be edited", "target", e.write.Target, "window", e.write.Name)
	}
	p.report(e, func(progress *window.Progress) {
		progress.Reason, progress.Message = window.Outcome(built.Hash, changed, true), message
		progress.Branch, progress.Commit = w.remote.branch, built.Hash
	})
	if built.Hash != "" {
		p.readiness.pushed(e.write.Target, built.Hash)
	}
}

// skipPath notes a path that stands in the way of a commit; false if that helps
// nothing, because it is known or the error is about something else.
func (e *entry) skipPath(err error) bool {
	var (
		notRegular *git.NotRegularError
		collision  *git.CollisionError
		path       string
	)
	switch {
	case errors.As(err, &notRegular):
		path = notRegular.Path
	case errors.As(err, &collision):
		path = collision.Path
	}
	if path == "" || e.skip[path] != nil {
		return false
	}
	if e.skip == nil {
		e.skip = map[string]error{}
	}
	e.skip[path] = err
	return true
}

// supersede takes from earlier entries of the target what a later one has settled:
// sent now, they would turn those objects back. Caller must hold mu.
func (p *Pool) supersede(done *entry) {
	newer := map[window.Object]bool{}
	for _, c := range done.write.Changes {
		newer[c.Object] = true
	}
	for _, e := range p.backlogs[done.write.Target].entries {
		if e.sequence >= done.sequence {
			continue
		}
		var gone []window.Object
		e.write.Changes = slices.DeleteFunc(slices.Clone(e.write.Changes), func(c window.Change) bool {
			if newer[c.Object] {
				gone = append(gone, c.Object)
			}
			return newer[c.Object]
		})
		p.journal.Superseded(e.write.Name, gone)
	}
}

// suspend fails what is not on its way to the remote yet, and what is or was on its
// way should it not be there (W18). Caller must hold mu.
func (p *Pool) suspend(target types.NamespacedName) {
	b := p.backlogs[target]
	if b == nil {
		return
	}
	for _, e := range slices.Clone(b.entries) {
		switch {
		case e.pushing:
			e.dropped = true
		case len(e.attempts) > 0:
			e.sought, e.refused = true, false
		default:
			p.drop(e)
		}
	}
	p.dispatch(target)
}

// drop takes out an entry that comes to nothing because its target is suspended.
// Caller must hold mu.
func (p *Pool) drop(e *entry) {
	p.tell(e, v1alpha1.ReasonTargetSuspended, "")
	p.config.Recompare(e.write.Target)
	p.takeOut(e)
	p.journal.Over(e.write, true)
}

// remove takes out an entry that nothing is to be done for any more. Its request was
// told so before (D3). Caller must hold mu.
func (p *Pool) remove(e *entry) {
	p.takeOut(e)
	p.journal.Over(e.write, false)
}

// takeOut takes an entry out of its backlog. Caller must hold mu.
func (p *Pool) takeOut(e *entry) {
	b := p.backlogs[e.write.Target]
	b.entries = slices.DeleteFunc(b.entries, func(other *entry) bool { return other == e })
}

// tell reports a reason to the request of the write, if somebody asked for it.
func (p *Pool) tell(e *entry, reason, message string) {
	p.report(e, func(progress *window.Progress) { progress.Reason, progress.Message = reason, message })
}

func (p *Pool) report(e *entry, change func(*window.Progress)) {
	if e.write.Request != nil {
		p.requests.report(e.write.Request.UID, change)
	}
}
