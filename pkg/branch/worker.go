// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/failpoint"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/window"
)

// How long a worker waits before it tries again.
const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
	// refusedRetry is the slow timer of DESIGN 4.4: what the remote refused is
	// offered again, in case its rules were changed there.
	refusedRetry = 5 * time.Minute
	// slowPush is how long a push may take before its requests say that they wait
	// for it.
	slowPush = time.Second
	// journalTimeout is how long a session waits for its hashes to be on disk.
	journalTimeout = 10 * time.Second
)

// worker is the single owner of all pushes to one branch of one remote. Pool.mu
// guards it.
type worker struct {
	remote  remoteBranch
	running bool
	// wake ends a wait early.
	wake chan struct{}
	// failures are the repositories to be left alone for a while. One provider's bad
	// credentials do not stop those of another that writes to the same branch.
	failures map[*git.Repository]failure
	// slow is set while the slow timer runs for what was refused.
	slow *time.Timer
}

type failure struct {
	until time.Time
	delay time.Duration
}

// fail leaves a repository alone, longer each time, and at least as long as the
// remote asked for.
func (w *worker) fail(repository *git.Repository, atLeast time.Duration) {
	now, f := time.Now(), w.failures[repository]
	if f.until.After(now) {
		return // the same session's other entries
	}
	f.delay = min(max(2*f.delay, firstBackoff), maxBackoff)
	// Jitter keeps workers that failed together from coming back together.
	f.until = now.Add(max(f.delay/2+rand.N(f.delay), atLeast))
	w.failures[repository] = f
}

// forgive has a repository tried again now.
func (w *worker) forgive(repository *git.Repository) { delete(w.failures, repository) }

// worker returns the one of the branch. Caller must hold mu.
func (p *Pool) worker(remote remoteBranch) *worker {
	w := p.workers[remote]
	if w == nil {
		w = &worker{remote: remote, wake: make(chan struct{}, 1), failures: map[*git.Repository]failure{}}
		p.workers[remote] = w
	}
	return w
}

// start runs the worker, or has it look again if it runs. Caller must hold mu.
func (p *Pool) start(w *worker) {
	if w.running {
		select {
		case w.wake <- struct{}{}:
		default:
		}
		return
	}
	w.running = true
	go p.work(w)
}

// work pushes until nothing is left to push.
func (p *Pool) work(w *worker) {
	for {
		p.mu.Lock()
		batch, repository, wait := p.take(w, time.Now())
		if p.ctx.Err() != nil || len(batch) == 0 && wait == 0 {
			w.running = false
			if w.slow == nil {
				delete(p.workers, w.remote)
			}
			close(p.stopped)
			p.stopped = make(chan struct{})
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if len(batch) == 0 {
			p.pause(w, wait)
			continue
		}
		results := p.push(repository, w.remote.branch, batch)
		p.mu.Lock()
		p.settle(w, repository, results)
		p.mu.Unlock()
	}
}

func (p *Pool) pause(w *worker, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wake:
	case <-p.ctx.Done():
	}
}

// startSlowTimer offers what was refused again after a while. Caller must hold mu.
func (p *Pool) startSlowTimer(w *worker) {
	if w.slow != nil {
		return
	}
	w.slow = time.AfterFunc(refusedRetry, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		w.slow = nil
		if p.ctx.Err() != nil {
			return
		}
		for target, b := range p.backlogs {
			if b.routed && b.route.remote == w.remote {
				for _, e := range b.entries {
					e.refused = false
				}
				p.dispatch(target)
			}
		}
	})
}

// result is what became of an entry in a session.
type result struct {
	entry *entry
	// tried is false for an entry that has to wait for an earlier one's next attempt.
	tried bool
	built git.Built
	err   error
}

// push sends the batch in one session. When the remote refuses it, each goes by
// itself: a bad one blocks only itself (G6).
func (p *Pool) push(repository *git.Repository, branch string, batch []*entry) []result {
	slow := time.AfterFunc(slowPush, func() { p.reportSlow(batch) })
	defer slow.Stop()
	results := make([]result, len(batch))
	built, err := p.session(repository, branch, batch)
	for i, e := range batch {
		results[i] = result{entry: e, tried: true, err: err}
		if err == nil {
			results[i].built = built[i]
		}
	}
	if len(batch) == 1 || !concernsOne(err) {
		return results
	}
	for i, e := range batch {
		results[i] = result{entry: e}
	}
	for i, e := range batch {
		built, err := p.session(repository, branch, []*entry{e})
		results[i].tried, results[i].err = true, err
		if err == nil {
			results[i].built = built[0]
		} else if !concernsOne(err) {
			break // it is tried again, before those behind it
		}
	}
	return results
}

// concernsOne says whether an error may be about one commit and not about the
// remote as such.
func concernsOne(err error) bool {
	var (
		refused     *git.RefusedError
		unsupported *git.UnsupportedError
	)
	return errors.As(err, &refused) || errors.As(err, &unsupported)
}

func (p *Pool) session(repository *git.Repository, branch string, batch []*entry) ([]git.Built, error) {
	commits := make([]git.Commit, len(batch))
	for i, e := range batch {
		commits[i] = e.commit()
	}
	built, err := repository.Push(p.ctx, branch, commits, func(built []git.Built) error {
		p.settleUnchanged(batch, built)
		for i, e := range batch {
			if e.made(built[i]) {
				p.journal.Attempted(e.write.Name, e.attempts)
			}
		}
		ctx, cancel := context.WithTimeout(p.ctx, journalTimeout)
		defer cancel()
		if err := p.journal.Sync(ctx); err != nil { // D2
			return err
		}
		failpoint.Hit(failpoint.PushBefore)
		return nil
	})
	failpoint.Hit(failpoint.PushAfter)
	if err != nil && p.ctx.Err() == nil {
		klog.FromContext(p.ctx).Info("Push failed", "branch", branch, "commits", len(batch), "err", err)
	}
	return built, err
}

// made notes a commit that is about to be sent; false if it was noted before.
func (e *entry) made(built git.Built) bool {
	if built.Hash == "" || e.attempt(built.Hash) >= 0 {
		return false
	}
	e.attempts = append(e.attempts, recovery.Attempt{Hash: built.Hash, Onto: built.Onto, Changed: built.Changed, Unsaved: texts(e.unsaved)})
	return true
}

// attempt is the index of the attempt that made a commit; -1 if none did.
func (e *entry) attempt(hash string) int {
	return slices.IndexFunc(e.attempts, func(a recovery.Attempt) bool { return a.Hash == hash })
}

func texts(errs []error) []string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return texts
}

// settleUnchanged tells the requests of writes that change nothing, without
// waiting for the push of the others (W15); not if what they would change is in an
// earlier commit of their target that is not on the remote yet.
func (p *Pool) settleUnchanged(batch []*entry, built []git.Built) {
	for i, e := range batch {
		if built[i].Hash != "" || built[i].Err != nil || e.settled || e.sought || e.write.Request == nil || slices.ContainsFunc(batch[:i], func(earlier *entry) bool {
			return earlier.write.Target == e.write.Target && !earlier.settled
		}) {
			continue
		}
		e.settled = true
		p.tell(e, window.Outcome("", nil, false), "")
	}
}

// reportSlow says that requests wait for a push that takes its time.
func (p *Pool) reportSlow(batch []*entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range batch {
		if !e.pushing {
			continue
		}
		p.report(e, func(progress *window.Progress) {
			if progress.Reason == v1alpha1.ReasonCollectingWindow || progress.Reason == "" { // not one that says more already
				progress.Reason, progress.Message = v1alpha1.ReasonWaitingForPush, ""
			}
		})
	}
}
