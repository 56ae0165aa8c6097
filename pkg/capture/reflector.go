// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// queueLength is how many events a source reads ahead of its worker.
const queueLength = 128

// listTimeout bounds a list that proofs wait for.
const listTimeout = 30 * time.Second

// source is one resource in one namespace: a reflector, the worker that takes its
// events one after the other, and what was seen.
type source struct {
	capture *Capture
	key     sourceKey
	ctx     context.Context
	stop    context.CancelFunc
	stopped <-chan struct{}
	// queue holds the worker's work, in order.
	queue chan func(context.Context)
	// lists are what catching up is proven by.
	lists sharedLists

	mu sync.Mutex
	// records of all objects that exist, by name.
	records map[string]record
	// common is what shared returned last.
	common []*claim
	// flights are the changes under way to the sink, by the name of the object, oldest
	// first.
	flights map[string][]leg
	// sequence numbers the changes handed on.
	sequence uint64
	// position: all writes up to this resourceVersion were seen.
	position string
	// claims, sorted by target.
	claims []*claim
	// claimed: its first claims were set.
	claimed bool
	// synced: one complete list was seen.
	synced bool
	// failure is why the last list or watch failed; nil while it works.
	failure error
	// from is where the source goes on from, until its first list is taken in; resumed
	// that this list was made.
	from    *Place
	resumed bool
	// pastUnknown: what was made after the place it went on from, and told of by the
	// process before, may not have been seen.
	pastUnknown bool
	// saved is the place that was said last.
	saved Place
}

// newSource makes a source, which does nothing until run and ends with the context,
// or by stop.
func (c *Capture) newSource(ctx context.Context, key sourceKey) *source {
	sourceCtx, cancel := context.WithCancel(ctx)
	s := &source{
		capture: c, key: key, ctx: sourceCtx, stop: cancel, stopped: sourceCtx.Done(),
		queue:   make(chan func(context.Context), queueLength),
		records: map[string]record{}, flights: map[string][]leg{},
	}
	s.lists.list = func() (*metav1.PartialObjectMetadataList, error) {
		ctx, cancel := context.WithTimeout(sourceCtx, listTimeout)
		defer cancel()
		return c.Metadata.Resource(key.resource).Namespace(key.namespace).List(ctx, metav1.ListOptions{})
	}
	c.resume(s)
	return s
}

// run reads the source; what was begun is handed on with ctx.
func (s *source) run(ctx context.Context) {
	c, key, sourceCtx := s.capture, s.key, s.ctx
	reflector := cache.NewReflectorWithOptions(s.listerWatcher(), &unstructured.Unstructured{}, store{s}, cache.ReflectorOptions{
		Name:            fmt.Sprintf("%s/%s", key.namespace, key.resource.GroupResource()),
		TypeDescription: key.resource.String(),
	})
	c.running.Go(func() { reflector.RunWithContext(sourceCtx) })
	c.running.Go(func() {
		for {
			select {
			case <-sourceCtx.Done():
				return
			case work := <-s.queue:
				// What was begun is handed on also when only this source stops.
				work(ctx)
			}
		}
	})
}

// listerWatcher reads the source's objects and notes failures.
func (s *source) listerWatcher() cache.ListerWatcher {
	client := s.capture.Dynamic
	resource := client.Resource(s.key.resource).Namespace(s.key.namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if list, resumes, err := s.listFrom(ctx); resumes {
				if err != nil {
					s.noteFailure(err)
					return nil, err
				}
				return list, nil
			}
			if options.ResourceVersion == "0" {
				// "0" may be answered from any time; a baseline on the past would undo in Git
				// what came after.
				options.ResourceVersion = ""
			}
			list, err := resource.List(ctx, options)
			if err != nil {
				s.noteFailure(err)
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := resource.Watch(ctx, options)
			switch {
			case err == nil:
				s.noteFailure(nil)
			case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
				s.noteFailure(err)
			}
			return w, err
		},
	}
	if s.from != nil {
		return listFirst{lw} // a stream of the objects shows them as they are now
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, client)
}

// listFirst has a reflector list before it watches.
type listFirst struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how a reflector asks.
func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// noteFailure keeps why the source does not work, and asks for the rules' statuses
// to say so.
func (s *source) noteFailure(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	s.mu.Lock()
	same := (err == nil) == (s.failure == nil) && (err == nil || err.Error() == s.failure.Error())
	s.failure = err
	s.mu.Unlock()
	if !same {
		s.capture.changed.wake()
		s.capture.poke()
	}
}

// do queues work for the worker and waits for room. It returns false when the
// source has stopped.
func (s *source) do(work func(context.Context)) bool {
	select {
	case s.queue <- work:
		return true
	case <-s.stopped:
		return false
	}
}

// claim makes the source serve these claims. A claim that is new asks for a
// baseline; one that says the same as before stays the same claim.
// What the process before compared is not compared again, but that of stale targets.
func (s *source) claim(ctx context.Context, claims []*claim, stale map[types.NamespacedName]bool) {
	slices.SortFunc(claims, func(a, b *claim) int {
		return compareNames(a.target, b.target)
	})
	s.mu.Lock()
	var added []types.NamespacedName
	for i, next := range claims {
		if old := find(s.claims, next.target); old != nil && old.equal(next) {
			claims[i] = old
			continue
		}
		if s.from != nil && !s.claimed && !stale[next.target] && slices.Contains(s.from.Compared, next.describe(s.capture)) {
			continue
		}
		next.wanted = 1
		added = append(added, next.target)
	}
	s.claimed = true
	s.claims = claims
	s.mu.Unlock()
	for _, target := range added {
		s.capture.startBaseline(ctx, target)
	}
}

// owe notes that a target's claim, if there is one, will have to be compared again.
func (s *source) owe(target types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := find(s.claims, target); own != nil {
		own.owed++
	}
}

// claimOf returns the target's claim, nil when it has none.
func (s *source) claimOf(target types.NamespacedName) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return find(s.claims, target)
}

func find(claims []*claim, target types.NamespacedName) *claim {
	for _, c := range claims {
		if c.target == target {
			return c
		}
	}
	return nil
}

// store is how the reflector feeds the worker. It keeps nothing itself (C1).
type store struct{ *source }

var (
	_ cache.ReflectorStore         = store{}
	_ cache.ReflectorBookmarkStore = store{}
)

// submit queues an event. One that comes after the source has stopped is nobody's.
func (s store) submit(work func(context.Context)) error {
	s.do(work)
	return nil
}

// Add implements cache.ReflectorStore.
func (s store) Add(object any) error { return s.Update(object) }

// Update implements cache.ReflectorStore.
func (s store) Update(object any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("an event of type %T", object)
	}
	arrived := time.Now()
	return s.submit(func(ctx context.Context) {
		s.observe(ctx, u, arrived)
		s.advance(u.GetResourceVersion())
	})
}

// Delete implements cache.ReflectorStore.
func (s store) Delete(object any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("an event of type %T", object)
	}
	arrived := time.Now()
	return s.submit(func(ctx context.Context) {
		s.removed(ctx, u, arrived)
		s.advance(u.GetResourceVersion())
	})
}

// Replace implements cache.ReflectorStore; it is called with complete lists only.
func (s store) Replace(list []any, resourceVersion string) error {
	objects := make([]*unstructured.Unstructured, 0, len(list))
	for _, object := range list {
		u, ok := object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("an item of type %T", object)
		}
		objects = append(objects, u)
	}
	return s.submit(func(ctx context.Context) { s.replace(ctx, objects, resourceVersion) })
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (s store) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (s store) Bookmark(resourceVersion string) error {
	return s.submit(func(context.Context) { s.advance(resourceVersion) })
}
