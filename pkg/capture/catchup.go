// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// LagError: it was not proven that all changes of a target were handed on.
type LagError struct {
	// Resource and Namespace that lag.
	Resource  schema.GroupResource
	Namespace string
	// Object that was not seen, or whose change is not attributed yet; empty when it
	// is not about one.
	Object string
	// Err is why.
	Err error
}

func (e *LagError) Error() string {
	what := e.Resource.String()
	if e.Object != "" {
		what += " " + e.Object
	}
	return fmt.Sprintf("%s in namespace %s may have changes that are not captured yet: %v", what, e.Namespace, e.Err)
}

func (e *LagError) Unwrap() error { return e.Err }

// CatchUp returns nil when all that was persisted in the target's resources before
// the call was seen, and every change among it was handed to the Sink (DESIGN 5.5).
// It looks only at the target's own objects. The context bounds it; what is not
// proven by then, or cannot be, is a *LagError that names the resource.
func (c *Capture) CatchUp(ctx context.Context, target types.NamespacedName) error {
	select {
	case <-c.planned:
	case <-ctx.Done():
		return &LagError{Namespace: target.Namespace, Err: ctx.Err()}
	}
	of := c.sourcesOf(target)
	proofs := make(chan error, len(of))
	for s, claim := range of {
		go func() { proofs <- s.catchUp(ctx, claim) }()
	}
	var lag error
	for range of {
		if err := <-proofs; err != nil && lag == nil {
			lag = err
		}
	}
	return lag
}

// goal is what one object must come to before a source has caught up.
type goal struct {
	name string
	uid  types.UID
	// version to be seen; of the list, when the object is to be seen gone. Changes up
	// to it are to be delivered.
	version string
	gone    bool
}

// catchUp proves one source's part.
func (s *source) catchUp(ctx context.Context, claim *claim) error {
	lag := func(object string, err error) error {
		return &LagError{Resource: s.key.resource.GroupResource(), Namespace: s.key.namespace, Object: object, Err: err}
	}
	list, err := s.lists.fresh(ctx)
	if err != nil {
		return lag("", err)
	}
	// What a source that goes on from the past has to see gone, only its list tells.
	if object, err := s.await(ctx, func() (string, bool) { return "", s.synced }); err != nil {
		return lag(object, err)
	}
	s.mu.Lock()
	goals := s.goals(claim, list)
	s.mu.Unlock()
	object, err := s.await(ctx, func() (string, bool) {
		object, done := s.reached(claim, goals)
		if !done {
			return object, false
		}
		// What was made and deleted before the list may have been seen made only.
		return s.reached(claim, s.departures(claim, list))
	})
	if err != nil {
		return lag(object, err)
	}
	return nil
}

// await returns once it is so, or why it cannot be, with the object that is missing.
// It asks with mu held.
func (s *source) await(ctx context.Context, is func() (string, bool)) (string, error) {
	for {
		changed := s.capture.changed.wait()
		s.mu.Lock()
		object, done := is()
		failure := s.failure
		s.mu.Unlock()
		if done {
			return "", nil
		}
		select {
		case <-ctx.Done():
			return object, cmp.Or(failure, context.Cause(ctx))
		case <-changed:
		}
	}
}

// goals of a list: what it shows is to be seen, what it does not show to be seen
// gone.
// Caller must hold mu.
func (s *source) goals(claim *claim, list *metav1.PartialObjectMetadataList) []goal {
	goals := s.departures(claim, list)
	for i := range list.Items {
		if item := &list.Items[i]; claim.selects(item.Name, item.Labels) {
			goals = append(goals, goal{name: item.Name, uid: item.UID, version: item.ResourceVersion})
		}
	}
	// Deletions that were seen before the list have to be delivered too, as have the
	// changes of objects that left the selector.
	for name, legs := range s.flights {
		for _, l := range legs {
			if slices.Contains(l.targets, claim.target) {
				goals = append(goals, goal{name: name, uid: l.uid, version: l.version})
			}
		}
	}
	return goals
}

// departures are the goals of what the target was told of and the list does not show,
// or shows as none of its own.
// Caller must hold mu.
func (s *source) departures(claim *claim, list *metav1.PartialObjectMetadataList) []goal {
	listed := make(map[string]*metav1.PartialObjectMetadata, len(list.Items))
	for i := range list.Items {
		listed[list.Items[i].Name] = &list.Items[i]
	}
	var goals []goal
	for name, r := range s.records {
		if find(r.members, claim.target) == nil || compareVersions(r.resourceVersion, list.ResourceVersion) > 0 {
			continue
		}
		switch item := listed[name]; {
		case item == nil || item.UID != r.uid:
			goals = append(goals, goal{name: name, uid: r.uid, version: list.ResourceVersion, gone: true})
		case !claim.selects(name, item.Labels):
			goals = append(goals, goal{name: name, uid: r.uid, version: item.ResourceVersion})
		}
	}
	return goals
}

// reached reports whether all goals are, and if not, an object that is missing.
// Caller must hold mu.
func (s *source) reached(claim *claim, goals []goal) (string, bool) {
	if !s.synced || !claim.settled() {
		return "", false
	}
	for _, g := range goals {
		if !s.saw(g) {
			return g.name, false
		}
		for _, l := range s.flights[g.name] {
			if slices.Contains(l.targets, claim.target) && compareVersions(l.version, g.version) <= 0 {
				return g.name, false
			}
		}
	}
	return "", true
}

// saw reports whether the source has seen what the goal names. What the watch has
// passed was seen; the records tell earlier when an event has not moved it there.
// Caller must hold mu.
func (s *source) saw(g goal) bool {
	if compareVersions(s.position, g.version) >= 0 {
		return true
	}
	r, exists := s.records[g.name]
	if g.gone {
		return !exists || r.uid != g.uid
	}
	return exists && r.uid == g.uid && compareVersions(r.resourceVersion, g.version) >= 0
}
