// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/pkg/window"
)

// A baseline compares what a target claims with Git (C9): when its claims change,
// when a list shows objects that no event announced, and when the target resumes.
// It runs beside the watch, which goes on; only for the moment in which its result
// is handed on do the sources wait, so that no later change overtakes it.

// pageSize of the lists that a baseline reads.
const pageSize = 500

// The waits between attempts at a baseline that failed.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// errStopped: a source was stopped while a baseline was about to be handed on; the
// claims it served are gone.
var errStopped = errors.New("a source has stopped")

// baselineRun is a running baseline. Guarded by Capture.mu.
type baselineRun struct {
	// wake has one slot, for another attempt: it ends the wait after one that failed.
	wake chan struct{}
}

func (r *baselineRun) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// startBaseline makes sure that a baseline of the target begins after now.
func (c *Capture) startBaseline(ctx context.Context, target types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run := c.baselines[target]; run != nil {
		run.poke()
		return
	}
	run := &baselineRun{wake: make(chan struct{}, 1)}
	c.baselines[target] = run
	c.running.Go(func() { c.runBaseline(ctx, target, run) })
}

// Retry says that the target or its GitProvider may work now: a comparison with Git
// that failed is repeated without further waiting. Where none failed there is
// nothing to do. It returns at once, and may be called with locks held.
func (c *Capture) Retry(target types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run := c.baselines[target]; run != nil {
		run.poke()
	}
}

// runBaseline repeats the target's baseline until it succeeds and nothing asks for
// another one.
func (c *Capture) runBaseline(ctx context.Context, target types.NamespacedName, run *baselineRun) {
	retry := firstRetry
	for {
		err := c.baseline(ctx, target)
		if err == nil {
			retry = firstRetry
			if c.endBaseline(ctx, target, run) {
				return
			}
			continue
		}
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Comparison with Git failed, will be repeated", "gitTarget", target, "after", retry)
		}
		select {
		case <-ctx.Done():
			c.endBaseline(ctx, target, run)
			return
		case <-run.wake:
			retry = firstRetry
		case <-time.After(retry):
			retry = min(2*retry, lastRetry)
		}
	}
}

// endBaseline forgets a run, unless another baseline is asked of it.
func (c *Capture) endBaseline(ctx context.Context, target types.NamespacedName, run *baselineRun) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil && len(run.wake) > 0 {
		<-run.wake
		return false
	}
	delete(c.baselines, target)
	return true
}

// part is one source's share of a baseline.
type part struct {
	source *source
	claim  *claim
	// wanted is the count of reasons that this baseline answers.
	wanted int
	// listed are the objects that the target selects, as its own list shows them.
	listed []listing
	// others exist and are captured by nobody; a file of that name stays.
	others map[string]bool
	// untold are those of the objects of which the resync will tell the target.
	untold []string
}

// listing is one listed object.
type listing struct {
	sight
	// joinable: who wrote the object last made the change, if there is one.
	joinable bool
	// written is when that was.
	written time.Time
}

// baseline runs one comparison. Sources that do not work are left out: their first
// complete list asks again.
func (c *Capture) baseline(ctx context.Context, target types.NamespacedName) error {
	candidates, err := c.parts(ctx, target)
	if err != nil {
		return err
	}
	var scope Scope
	var listed []window.Change
	var parts []part
	var failed error
	for _, p := range candidates {
		if err := p.list(ctx); err != nil {
			failed = errors.Join(failed, err) // the others go on
			continue
		}
		parts = append(parts, p)
		scope.Resources = append(scope.Resources, ScopedResource{
			Group: p.source.key.resource.Group, Resource: p.source.key.resource.Resource, Namespace: p.source.key.namespace,
		})
		for _, l := range p.listed {
			listed = append(listed, l.change(target, window.Update))
		}
	}
	if len(parts) == 0 {
		return failed
	}
	differing, orphans, err := c.Sink.Differing(ctx, target, scope, listed)
	if err != nil {
		return fmt.Errorf("GitTarget %s: %w", target, err)
	}
	return errors.Join(failed, c.settle(ctx, target, parts, differing, orphans))
}

// parts waits until each source that the target claims has either been listed or
// failed, and returns those that need a baseline, in a fixed order.
func (c *Capture) parts(ctx context.Context, target types.NamespacedName) ([]part, error) {
	for {
		changed := c.changed.wait()
		waiting := false
		var parts []part
		for s, claim := range c.sourcesOf(target) {
			s.mu.Lock()
			switch {
			case s.synced && claim.done < claim.wanted:
				parts = append(parts, part{source: s, claim: claim, wanted: claim.wanted})
			case !s.synced && s.failure == nil:
				waiting = true
			}
			s.mu.Unlock()
		}
		if !waiting {
			slices.SortFunc(parts, func(a, b part) int {
				x, y := a.source.object(""), b.source.object("")
				return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Namespace, y.Namespace))
			})
			return parts, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// list reads the part's objects. A list that ends early is an error, never a
// shorter list.
func (p *part) list(ctx context.Context) error {
	s := p.source
	client := s.capture.Dynamic.Resource(s.key.resource).Namespace(s.key.namespace)
	p.others = map[string]bool{}
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := client.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s in namespace %q: %w", s.key.resource.GroupResource(), s.key.namespace, err)
		}
		for i := range page.Items {
			u := &page.Items[i]
			seen := s.look(ctx, u)
			switch {
			case seen.deleting: // its deletion was asked for
			case !seen.captured:
				p.others[u.GetName()] = true
			case p.claim.selects(u.GetName(), seen.labels):
				p.listed = append(p.listed, listing{sight: seen, joinable: lastWriteIsIntent(u), written: lastWrite(u)})
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// settle hands on what differs. All sources of the baseline wait while the rest
// goes to the sink in one resync: a change that came after must arrive after.
func (c *Capture) settle(ctx context.Context, target types.NamespacedName, parts []part, differing []window.Change, orphans []window.Object) error {
	// One at a time, or two of them could wait for each other's sources.
	select {
	case c.settling <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.settling }()

	release := make(chan struct{})
	defer close(release)
	differs := make(map[window.Object]window.Change, len(differing))
	for _, change := range differing {
		differs[change.Object] = change
	}
	var resync []window.Change
	for i := range parts {
		p := &parts[i]
		rest := make(chan []window.Change, 1)
		if !p.source.do(func(ctx context.Context) {
			rest <- p.settle(ctx, differs, orphans)
			<-release
		}) {
			return errStopped
		}
		select {
		case changes := <-rest:
			resync = append(resync, changes...)
		case <-p.source.stopped:
			return errStopped
		}
	}
	if len(resync) > 0 {
		if err := c.Sink.Resync(ctx, target, resync); err != nil {
			return err
		}
	}
	for i := range parts {
		p := &parts[i]
		p.source.mu.Lock()
		for _, name := range p.untold {
			r := p.source.records[name]
			r.members = p.source.with(r.members, p.claim)
			p.source.records[name] = r
		}
		p.claim.done = max(p.claim.done, p.wanted)
		p.source.mu.Unlock()
	}
	c.compared(target)
	c.changed.wake()
	c.poke()
	return nil
}

// settle decides one part on the worker: what has or may get an author is handed
// on, the rest is returned.
func (p *part) settle(ctx context.Context, differs map[window.Object]window.Change, orphans []window.Object) []window.Change {
	s := p.source
	target, exists := s.capture.target(p.claim.target)
	if !exists || s.claimOf(p.claim.target) != p.claim {
		return nil // the claim was changed, which asks for a baseline of its own
	}
	var rest []window.Change
	var own []handing
	s.mu.Lock()
	for _, l := range p.listed {
		l.compared, l.after = true, p.claim.toldUntil
		r, ok := s.records[l.object.Name]
		if !ok || r.uid != l.uid || r.digest != l.digest || r.deleting {
			continue // the watch has told of another version, or will
		}
		told := find(r.members, p.claim.target)
		change, differ := differs[l.object]
		switch {
		case told != nil || !differ:
		case l.attributable(s.capture, target):
			own = append(own, handing{l.sight, change, false})
		case s.inFlight(l.object.Name, p.claim.target):
			// The deletion of an object that had this name, say: it must not arrive after.
			own = append(own, handing{l.sight, change, true})
		default:
			rest = append(rest, change)
			p.untold = append(p.untold, l.object.Name)
			continue // one that is not taken has to be found again
		}
		r.members = s.with(r.members, p.claim)
		s.records[l.object.Name] = r
	}
	if target.prune {
		for _, object := range orphans {
			name := object.Name
			if s.object(name) != object || !p.claim.mayName(name) || p.others[name] {
				continue
			}
			if find(s.records[name].members, p.claim.target) != nil || s.inFlight(name, p.claim.target) {
				continue // it came, or its deletion was seen, after the list
			}
			rest = append(rest, window.Change{Target: p.claim.target, Object: object, Operation: window.Delete})
		}
	}
	s.mu.Unlock()
	for _, h := range own {
		s.hand(ctx, h.sight, []window.Change{h.change}, h.anonymous)
	}
	return rest
}

// handing is one call of source.hand.
type handing struct {
	sight     sight
	change    window.Change
	anonymous bool
}

// attributable reports whether a difference has an author or may get one.
func (l listing) attributable(c *Capture, t target) bool {
	if time.Since(l.written) < c.AttributionGrace && (l.joinable || !t.attributed) {
		return true
	}
	if !t.attributed || !l.joinable {
		return false
	}
	username, ok := c.Facts.Find(l.joinVersion())
	return ok && c.Facts.Sole(l.joinVersion(), l.after, username)
}

// with returns the members with this claim in the place of the target's others.
// Caller must hold mu.
func (s *source) with(members []*claim, c *claim) []*claim {
	if slices.Contains(members, c) {
		return members
	}
	next := slices.DeleteFunc(slices.Clone(members), func(m *claim) bool { return m.target == c.target })
	next = append(next, c)
	slices.SortFunc(next, func(a, b *claim) int { return compareNames(a.target, b.target) })
	return s.shared(next)
}

// forget makes a target's objects new to it, for a baseline to compare: what was
// handed on while it was suspended came to nothing (W18).
func (c *Capture) forget(ctx context.Context, target types.NamespacedName) {
	for s := range c.sourcesOf(target) {
		s.do(func(context.Context) {
			s.mu.Lock()
			for name, r := range s.records {
				r.members = s.shared(slices.DeleteFunc(slices.Clone(r.members), func(m *claim) bool { return m.target == target }))
				s.records[name] = r
			}
			if own := find(s.claims, target); own != nil {
				own.wanted++
				own.owed = max(0, own.owed-1)
			}
			s.mu.Unlock()
			c.startBaseline(ctx, target)
		})
	}
}
