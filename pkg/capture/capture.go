// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capture watches what WatchRules claim on the host cluster and hands each
// change of intent, with its author, to the branch workers (DESIGN 5.5, 6).
//
// # Concurrency
//
// There is one source per (resource, namespace), shared by all targets (C1). A
// source has one reflector and one worker goroutine; all that touches its records
// or hands on its changes runs on the worker, in the order of the watch. So the
// order of one object's changes is the order of its writes. What waits for its
// author waits in the Joiner, which keeps that order per object.
//
// Nothing holds a lock while it calls the Sink or the Joiner: both may block, and
// blocking them is how a full queue slows the watch down instead of losing events.
//
// # Invariant
//
// A record's members are the targets that were told of the object. An object that
// a target was not told of is compared with Git by that target's baseline (C9);
// one that it was told of never is, because its change may be in an open window.
package capture

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/attribution"
	"github.com/kommit-dev/kommit/pkg/window"
)

// Sink takes what was captured. Its methods may block; nothing is dropped, the
// watch waits. They are called from several goroutines; calls about one object of
// one target come one after the other, in the order of the writes. An error of Change
// or Resync means that it was not taken, because the process is about to end: it comes
// again in the next one.
type Sink interface {
	// Change is one change with its author, window.Unresolved when attribution found
	// nobody and the zero author for a target without attribution. After a crash it may
	// be one that was taken before: the object's resourceVersions tell. That of a deletion
	// that no event told of is the one by which the object was gone.
	Change(ctx context.Context, change window.Change) error
	// Resync takes what a comparison with Git found and nobody can be named for (C9).
	Resync(ctx context.Context, target types.NamespacedName, changes []window.Change) error
	// Differing compares complete lists with the target's branch, as it will be when all
	// that was taken has been committed. differing are those of listed whose file will
	// not say the same, in the order of listed; orphans are the objects that will have a
	// file within the scope and are not listed.
	Differing(ctx context.Context, target types.NamespacedName, scope Scope, listed []window.Change) (differing []window.Change, orphans []window.Object, err error)
}

// Scope is what lists are complete for.
type Scope struct{ Resources []ScopedResource }

// ScopedResource is one resource in one namespace.
type ScopedResource struct{ Group, Resource, Namespace string }

// Version identifies one version of one object, or its deletion.
type Version = attribution.Version

// Joiner finds who caused a version. Submit calls deliver exactly once, per object
// in the order of submission; ok is false when nobody was found in time (C8).
type Joiner interface {
	Submit(ctx context.Context, version Version, deliver func(username string, ok bool))
}

// Facts says whether it is already known who caused a version.
type Facts interface {
	Find(version Version) (username string, ok bool)
	// Sole says whether nobody but the user is known to have changed the object's intent
	// between a resourceVersion, empty for any, and the version.
	Sole(version Version, after, username string) bool
}

var (
	_ Joiner = (*attribution.Joiner)(nil)
	_ Facts  = (*attribution.Facts)(nil)
)

// Config is what a Capture works with. All fields are needed but where it says so.
type Config struct {
	// Dynamic and Metadata read the captured objects on the host cluster.
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
	// Mapper resolves resource names; it is reset while one is unknown.
	Mapper apimeta.ResettableRESTMapper
	// WatchRules and GitTargets are informers that someone else runs.
	WatchRules cache.SharedIndexInformer
	GitTargets cache.SharedIndexInformer
	// WriteStatus stores the status of a rule.
	WriteStatus func(ctx context.Context, rule *v1alpha1.WatchRule) error
	Joiner      Joiner
	Facts       Facts
	Sink        Sink
	// Places keeps where the sources are for the next process; nil: it begins anew.
	Places Places
	// AttributionGrace is how long a change waits for its author (C8).
	AttributionGrace time.Duration
	// Metrics may be nil.
	Metrics *Metrics
}

// Capture is the running whole. Its methods are safe for concurrent use.
type Capture struct {
	Config
	// work is poked when rules, targets or the state of a source changed.
	work chan struct{}
	// changed tells those who wait for progress.
	changed broadcast
	// targets is what is known of the GitTargets, replaced as a whole.
	targets atomic.Pointer[map[types.NamespacedName]target]
	// planned is closed when the rules were looked at for the first time: until then
	// no target claims anything.
	planned chan struct{}
	// settling is held by the baseline that makes sources wait; see settle.
	settling chan struct{}
	// running counts sources and baselines.
	running sync.WaitGroup

	// resolved is what the rules' resources were found to be last; the reconciliation's.
	resolved map[schema.GroupResource]schema.GroupVersionResource
	// refreshed is when discovery was asked last; the reconciliation's.
	refreshed time.Time

	mu        sync.Mutex
	sources   map[sourceKey]*source
	baselines map[types.NamespacedName]*baselineRun
	// discarded are the targets that have to be compared once they are not suspended.
	discarded map[types.NamespacedName]bool
	// uncompared are those of which Places says so.
	uncompared map[types.NamespacedName]bool
	// tidied: places that nobody claims any more were forgotten.
	tidied bool
}

// target is what capture needs to know of a GitTarget.
type target struct {
	uid        types.UID
	generation int64
	attributed bool
	prune      bool
	suspended  bool
}

// New returns a Capture that does nothing until Run.
func New(config Config) *Capture {
	c := &Capture{
		Config:     config,
		work:       make(chan struct{}, 1),
		settling:   make(chan struct{}, 1),
		planned:    make(chan struct{}),
		sources:    map[sourceKey]*source{},
		baselines:  map[types.NamespacedName]*baselineRun{},
		discarded:  map[types.NamespacedName]bool{},
		uncompared: map[types.NamespacedName]bool{},
	}
	c.targets.Store(&map[types.NamespacedName]target{})
	return c
}

// unknownRetry is how long a resource that the server does not have is left alone
// before discovery is asked again; a CustomResourceDefinition may have come.
const unknownRetry = 10 * time.Second

// discoveryRefresh is how old what discovery said may become: a
// CustomResourceDefinition may have got another preferred version while the old one
// is still served, which nothing else tells.
const discoveryRefresh = 5 * time.Minute

// statusRetry is how long a status that could not be written waits.
const statusRetry = time.Second

// Run captures until the context ends, and returns when all has stopped. It returns
// an error only when it could not start.
func (c *Capture) Run(ctx context.Context) error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.poke() },
		UpdateFunc: func(any, any) { c.poke() },
		DeleteFunc: func(any) { c.poke() },
	}
	for _, informer := range []cache.SharedIndexInformer{c.WatchRules, c.GitTargets} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return err
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	defer c.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	if !cache.WaitForCacheSync(ctx.Done(), c.WatchRules.HasSynced, c.GitTargets.HasSynced) {
		return nil // stopped before it began
	}
	if c.Places != nil {
		for _, target := range c.Places.Uncompared() {
			c.discarded[target], c.uncompared[target] = true, true
		}
		c.running.Go(func() { c.savePlaces(ctx) })
	}
	for first := true; ; first = false {
		var again <-chan time.Time
		if after := c.reconcile(ctx); after > 0 {
			again = time.After(after)
		}
		if first {
			close(c.planned)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.work:
		case <-again:
		}
	}
}

// poke asks for a reconciliation.
func (c *Capture) poke() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

// target returns what is known of a target, and false for one that does not exist.
func (c *Capture) target(name types.NamespacedName) (target, bool) {
	t, ok := (*c.targets.Load())[name]
	return t, ok
}

// reconcile makes sources and claims follow the rules, then writes the rules'
// statuses. It returns when it has to run again by itself, 0 for never.
func (c *Capture) reconcile(ctx context.Context) time.Duration {
	targets, rules := c.desired()
	plan := c.plan(rules, targets)

	c.mu.Lock()
	before := *c.targets.Swap(&targets)
	stale := c.stale(before, targets) // before a place can say that they were compared
	sources := maps.Clone(c.sources)
	for key, s := range sources {
		if plan.claims[key] == nil {
			s.stop()
			delete(c.sources, key)
			if c.Places != nil {
				c.Places.Forget(key.scope())
			}
		}
	}
	c.forgetUnclaimed(plan)
	var fresh []*source
	for key := range plan.claims {
		if c.sources[key] == nil {
			c.sources[key] = c.newSource(ctx, key)
			fresh = append(fresh, c.sources[key])
		}
	}
	sources = maps.Clone(c.sources)
	c.mu.Unlock()

	for key, s := range sources {
		s.claim(ctx, plan.claims[key], stale)
	}
	for _, s := range fresh {
		s.run(ctx) // knowing who claims it
	}
	for name, t := range targets {
		was, known := before[name]
		if known && was != t {
			c.Retry(name)
		}
		if stale[name] {
			c.forget(ctx, name)
		}
	}
	c.changed.wake()
	again := c.report(ctx, plan)
	if again == 0 && len(rules) > 0 {
		again = discoveryRefresh
	}
	return again
}

// Recompare says that changes of the target came to nothing (W18). All that it
// claims is compared with its branch again, as soon as it is not suspended: a
// suspension may begin and end between two looks at the GitTargets. It returns at
// once, and may be called with locks held.
func (c *Capture) Recompare(target types.NamespacedName) {
	c.mu.Lock()
	known := c.discarded[target]
	c.discarded[target], c.uncompared[target] = true, true
	c.mu.Unlock()
	if !known {
		c.poke()
	}
}

// stale returns the targets of which all is to be compared with Git now: whose changes
// came to nothing, or may have (W18), and those that were replaced, whose branch may
// be another one. Of those that are suspended it would come to nothing again; they are
// kept.
// Caller must hold mu, and forget them.
func (c *Capture) stale(before, targets map[types.NamespacedName]target) map[types.NamespacedName]bool {
	stale := map[types.NamespacedName]bool{}
	for name, t := range targets {
		was, known := before[name]
		resumed := known && was.suspended && !t.suspended
		replaced := known && was.uid != t.uid
		if resumed || replaced || c.discarded[name] && !t.suspended {
			stale[name] = true
			for _, s := range c.sources {
				s.owe(name)
			}
		}
	}
	maps.DeleteFunc(c.discarded, func(name types.NamespacedName, _ bool) bool { return !targets[name].suspended })
	return stale
}

// sourcesOf returns the sources that a target claims something of, with the claim.
func (c *Capture) sourcesOf(target types.NamespacedName) map[*source]*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := map[*source]*claim{}
	for _, s := range c.sources {
		if claim := s.claimOf(target); claim != nil {
			of[s] = claim
		}
	}
	return of
}

// Resources returns what is captured for a target, sorted.
func (c *Capture) Resources(target types.NamespacedName) []schema.GroupResource {
	var list []schema.GroupResource
	for s := range c.sourcesOf(target) {
		list = append(list, s.key.resource.GroupResource())
	}
	slices.SortFunc(list, func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(list)
}

// broadcast wakes all who wait. The zero value is ready.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next wake closes. Who waits for a condition takes
// the channel first and looks at the condition then.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
