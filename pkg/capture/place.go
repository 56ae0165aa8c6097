// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// A place is where a source was, so that the next process goes on from there (D1): it
// lists the objects as they were at that resourceVersion, and watches from it. So it
// sees every version that was written meanwhile, each with its own author, where a
// list of today would show the last one only.

// Place is how far a source has come.
type Place struct {
	// ResourceVersion up to which all was handed on and taken.
	ResourceVersion string
	// Version of the API that was read. The place means nothing in another one, which
	// renders differently.
	Version string
	// Compared describes the claims that were compared with Git.
	Compared []string
}

// Places keeps where the sources are, in the order of the calls and behind what the
// Sink took: a place that is on disk implies that what it covers is. All but Place and
// the lists concerns the next process. Implementations are safe for concurrent use,
// and return at once.
type Places interface {
	// Place is what was saved last before this process began; false: nothing.
	Place(of ScopedResource) (Place, bool)
	// Sources are those that have a place of before this process began.
	Sources() []ScopedResource
	// Save keeps a place.
	Save(of ScopedResource, place Place)
	// Forget drops the place of a source that does not go on from there. No version
	// comes again.
	Forget(of ScopedResource)
	// Uncompared are the targets of which changes had come to nothing (W18) before this
	// process began, and that were not compared with Git since.
	Uncompared() []types.NamespacedName
	// Compared says that a target was compared with Git since.
	Compared(target types.NamespacedName)
}

// placeInterval is how often places are saved. What is handed on in between comes
// again after a crash.
const placeInterval = time.Second

// savePlaces saves the places that changed until ctx ends.
func (c *Capture) savePlaces(ctx context.Context) {
	ticker := time.NewTicker(placeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		c.mu.Lock()
		c.saveChanged()
		c.mu.Unlock()
	}
}

// saveChanged saves the places that changed.
// Caller must hold mu.
func (c *Capture) saveChanged() {
	for _, s := range c.sources {
		if place, ok := s.nextPlace(); ok {
			c.Places.Save(s.key.scope(), place)
		}
	}
}

// savePlace saves where one source is now.
func (c *Capture) savePlace(s *source) {
	if c.Places == nil {
		return
	}
	c.mu.Lock() // one after the other, or an earlier place could come last
	defer c.mu.Unlock()
	if place, ok := s.nextPlace(); ok && c.sources[s.key] == s {
		c.Places.Save(s.key.scope(), place)
	}
}

func (k sourceKey) scope() ScopedResource {
	return ScopedResource{Group: k.resource.Group, Resource: k.resource.Resource, Namespace: k.namespace}
}

// nextPlace is where the source is, if that is not what was said last.
func (s *source) nextPlace() (Place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		return Place{}, false
	}
	place := Place{ResourceVersion: s.position, Version: s.key.resource.Version}
	comparing := map[types.NamespacedName]bool{}
	for _, legs := range s.flights {
		for _, l := range legs {
			if l.compared {
				for _, target := range l.targets {
					comparing[target] = true
				}
			} else if compareVersions(l.after, place.ResourceVersion) < 0 {
				place.ResourceVersion = l.after
			}
		}
	}
	for _, c := range s.claims {
		if c.settled() && !comparing[c.target] {
			place.Compared = append(place.Compared, c.describe(s.capture))
		}
	}
	if place.ResourceVersion == s.saved.ResourceVersion && slices.Equal(place.Compared, s.saved.Compared) {
		return Place{}, false
	}
	s.saved = place
	return place, true
}

// describe says what a claim is about, for another process to know it again.
func (c *claim) describe(of *Capture) string {
	type selector struct {
		Names  []string             `json:"names,omitempty"`
		Labels metav1.LabelSelector `json:"labels"`
	}
	target, _ := of.target(c.target)
	description := struct {
		Target    string     `json:"target"`
		UID       types.UID  `json:"uid"`
		Selectors []selector `json:"selectors"`
	}{Target: c.target.String(), UID: target.uid}
	for _, s := range c.selectors {
		description.Selectors = append(description.Selectors, selector{Names: s.names, Labels: s.labels})
	}
	text, _ := json.Marshal(description) // holds nothing that cannot be marshalled
	return string(text)
}

// forgetUnclaimed drops the places of sources that were claimed when the process
// before ended, and are not any more. Caller must hold mu.
func (c *Capture) forgetUnclaimed(p plan) {
	if c.Places == nil || c.tidied || p.unknown {
		return
	}
	c.tidied = true
	claimed := map[ScopedResource]bool{}
	for key := range p.claims {
		claimed[key.scope()] = true
	}
	for _, of := range c.Places.Sources() {
		if !claimed[of] {
			c.Places.Forget(of)
		}
	}
}

// resume prepares a source to go on from where it was.
func (c *Capture) resume(s *source) {
	if c.Places == nil {
		return
	}
	place, ok := c.Places.Place(s.key.scope())
	if ok && place.ResourceVersion != "" && place.Version == s.key.resource.Version {
		s.from = &place
		return
	}
	c.Places.Forget(s.key.scope())
}

// listFrom lists the objects as they were at the place that the source goes on from.
// false: it does not, or not any more, and is to be listed as it is now.
func (s *source) listFrom(ctx context.Context) (*unstructured.UnstructuredList, bool, error) {
	s.mu.Lock()
	from, done := s.from, s.resumed
	s.mu.Unlock()
	if from == nil || done {
		return nil, false, nil
	}
	all := &unstructured.UnstructuredList{}
	client := s.capture.Dynamic.Resource(s.key.resource).Namespace(s.key.namespace)
	options := metav1.ListOptions{Limit: pageSize, ResourceVersion: from.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	for {
		page, err := client.List(ctx, options)
		switch {
		case gone(err):
			klog.FromContext(ctx).Info("What was written since the server ended is not known any more: the objects are compared with Git as they are",
				"resource", s.key.resource.GroupResource(), "namespace", s.key.namespace, "resourceVersion", from.ResourceVersion, "err", err)
			until := from.ResourceVersion
			if ahead(err) {
				until = "" // it is of another history: no version of this one is before it
			}
			s.startAnew(ctx, until)
			return nil, false, nil
		case err != nil:
			return nil, true, err
		}
		all.Object, all.Items = page.Object, append(all.Items, page.Items...)
		if page.GetContinue() == "" {
			all.SetResourceVersion(from.ResourceVersion)
			all.SetContinue("")
			s.mu.Lock()
			s.resumed = true // another list comes after what was watched meanwhile
			s.pastUnknown = true
			s.mu.Unlock()
			return all, true, nil
		}
		options = metav1.ListOptions{Limit: pageSize, Continue: page.GetContinue()}
	}
}

// gone says whether a resourceVersion cannot be had: it was compacted, or is of a
// future that a restored cluster does not know.
func gone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || ahead(err)
}

// ahead says whether the cluster has not come to a resourceVersion.
func ahead(err error) bool {
	return apierrors.IsTimeout(err) && apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// startAnew gives up where the source was: all that it serves is compared with Git.
// until is the resourceVersion up to which the targets were told of everything, empty
// if that says nothing.
func (s *source) startAnew(ctx context.Context, until string) {
	s.mu.Lock()
	s.from = nil
	var targets []types.NamespacedName
	for _, c := range s.claims {
		if c.done == c.wanted {
			c.wanted++
			c.toldUntil = until
			targets = append(targets, c.target)
		}
	}
	s.mu.Unlock()
	s.capture.Places.Forget(s.key.scope())
	for _, target := range targets {
		s.capture.startBaseline(ctx, target)
	}
}

// compared saves what a comparison changed, and says that nothing of a target has to be
// compared any more, if that is so. The places go first: while what it found has not
// arrived they say that the target was not compared, and nothing else may then.
func (c *Capture) compared(target types.NamespacedName) {
	if c.Places == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saveChanged()
	if !c.uncompared[target] || c.discarded[target] {
		return
	}
	for _, s := range c.sources {
		s.mu.Lock()
		claim := find(s.claims, target)
		behind := claim != nil && !claim.settled()
		s.mu.Unlock()
		if behind {
			return
		}
	}
	delete(c.uncompared, target)
	c.Places.Compared(target)
}
