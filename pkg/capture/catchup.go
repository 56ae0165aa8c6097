// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
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
	goals := s.goals(claim, list)
	for {
		changed := s.capture.changed.wait()
		object, done := s.reached(claim, goals)
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			s.mu.Lock()
			failure := s.failure
			s.mu.Unlock()
			if failure != nil {
				return lag(object, failure)
			}
			return lag(object, context.Cause(ctx))
		case <-changed:
		}
	}
}

// goals of a list: what it shows is to be seen, what it does not show to be seen
// gone.
func (s *source) goals(claim *claim, list *metav1.PartialObjectMetadataList) []goal {
	var goals []goal
	listed := map[string]types.UID{}
	for i := range list.Items {
		item := &list.Items[i]
		listed[item.Name] = item.UID
		if claim.selects(item.Name, item.Labels) {
			goals = append(goals, goal{name: item.Name, uid: item.UID, version: item.ResourceVersion})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.records {
		if find(r.members, claim.target) != nil && listed[name] != r.uid && compareVersions(r.resourceVersion, list.ResourceVersion) <= 0 {
			goals = append(goals, goal{name: name, uid: r.uid, version: list.ResourceVersion, gone: true})
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

// reached reports whether all goals are, and if not, an object that is missing.
func (s *source) reached(claim *claim, goals []goal) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced || claim.done < claim.wanted {
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
