// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/pkg/manifest"
	"github.com/kommit-dev/kommit/pkg/window"
)

// digest is the hash of a rendering; zero for an object that has none.
type digest [16]byte

// record is all that is kept of an object (C1).
type record struct {
	uid             types.UID
	resourceVersion string
	// digest of the last rendering; zero when the object is not captured.
	digest digest
	// deleting: its deletion was asked for, and handed on (C4).
	deleting bool
	// members are the claims whose targets were told of the object. A claim that has
	// been replaced since still says so.
	members []*claim
}

// sight is one version of an object, digested.
type sight struct {
	object   window.Object
	uid      types.UID
	version  string
	labels   labels.Set
	captured bool
	deleting bool
	manifest []byte
	digest   digest
	// arrived is when the watch brought it; zero for what a list shows.
	arrived time.Time
	// goneBy is the resourceVersion by which an object was gone whose deletion no event
	// told of.
	goneBy string
	// compared: a comparison with Git shows it.
	compared bool
	// after is the version that was seen before it; what a list shows may be the last of
	// several that were not. Empty when nothing was seen.
	after string
}

// look digests an object. One that cannot be rendered is logged and taken as not
// captured until it changes again.
func (s *source) look(ctx context.Context, u *unstructured.Unstructured) sight {
	v := sight{
		object: s.object(u.GetName()), uid: u.GetUID(), version: u.GetResourceVersion(), labels: u.GetLabels(),
		captured: manifest.Captured(u), deleting: u.GetDeletionTimestamp() != nil,
	}
	if !v.captured || v.deleting {
		return v
	}
	rendered, err := manifest.Render(u)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Object cannot be saved", "resource", s.key.resource.GroupResource(), "object", klog.KObj(u))
		v.captured = false
		return v
	}
	sum := sha256.Sum256(rendered)
	// Windows may keep it for long, without the room that writing it left behind.
	v.manifest, v.digest = bytes.Clone(rendered), digest(sum[:len(digest{})])
	return v
}

func (s *source) object(name string) window.Object {
	return window.Object{Group: s.key.resource.Group, Resource: s.key.resource.Resource, Namespace: s.key.namespace, Name: name}
}

// observe takes an object as an event shows it, or a list (arrived is zero then),
// before which writes may have been missed.
func (s *source) observe(ctx context.Context, u *unstructured.Unstructured, arrived time.Time) {
	seen := s.look(ctx, u)
	seen.arrived = arrived
	name := u.GetName()
	s.mu.Lock()
	old, known := s.records[name]
	s.mu.Unlock()
	if known && old.uid != seen.uid {
		// Its deletion fell into a gap of the watch.
		s.gone(ctx, name, seen.version)
		known = false
	}
	if known {
		seen.after = old.resourceVersion
	}
	s.mu.Lock()
	changes := s.step(seen, known)
	s.mu.Unlock()
	// The last of several writes may be a controller's word on the status, and its
	// author not the author of the change. A wrong author is worse than none.
	s.hand(ctx, seen, changes, arrived.IsZero() && !seen.deleting && !lastWriteIsIntent(u))
}

// step moves the record to what was seen and returns the changes that this is.
// Caller must hold mu.
func (s *source) step(seen sight, known bool) []window.Change {
	name := seen.object.Name
	old := s.records[name]
	next := record{uid: seen.uid, resourceVersion: seen.version, digest: seen.digest, deleting: seen.deleting, members: old.members}
	defer func() { s.records[name] = next }()
	if known && seen.deleting && old.deleting {
		next.members = nil
		return nil // clearing finalizers is nobody's change (C4)
	}
	if known && !seen.deleting && old.digest == seen.digest {
		return nil // C3
	}
	var changes []window.Change
	var members []*claim
	for _, c := range s.claims {
		was := find(old.members, c.target)
		selected := seen.captured && c.selects(name, seen.labels)
		switch {
		case seen.deleting:
			if was == c || selected {
				changes = append(changes, seen.change(c.target, window.Delete))
			}
		case selected && was != nil:
			changes = append(changes, seen.change(c.target, window.Update))
			members = append(members, c)
		case selected:
			changes = append(changes, seen.change(c.target, window.Create))
			members = append(members, c)
		case was == c:
			// The object left the selector. Where another claim had selected it, the rule
			// left the object, and its file stays.
			changes = append(changes, seen.change(c.target, window.Delete))
		}
	}
	next.members = s.shared(members)
	return changes
}

// removed takes a DELETED event.
func (s *source) removed(ctx context.Context, u *unstructured.Unstructured, arrived time.Time) {
	name := u.GetName()
	s.mu.Lock()
	old, known := s.records[name]
	known = known && old.uid == u.GetUID()
	seen := sight{object: s.object(name), uid: u.GetUID(), version: u.GetResourceVersion(), labels: u.GetLabels(), arrived: arrived}
	var changes []window.Change
	if !known || !old.deleting {
		for _, c := range s.claims {
			if slices.Contains(old.members, c) || manifest.Captured(u) && c.selects(name, seen.labels) {
				changes = append(changes, seen.change(c.target, window.Delete))
			}
		}
	}
	if known {
		delete(s.records, name)
	}
	s.mu.Unlock()
	seen.deleting = true
	s.hand(ctx, seen, changes, false)
}

// gone takes an object that is known not to exist any more by a resourceVersion.
func (s *source) gone(ctx context.Context, name, by string) {
	s.mu.Lock()
	old := s.records[name]
	delete(s.records, name)
	seen := sight{object: s.object(name), uid: old.uid, version: old.resourceVersion, deleting: true, goneBy: by}
	var changes []window.Change
	if !old.deleting {
		for _, c := range s.claims {
			if slices.Contains(old.members, c) {
				changes = append(changes, seen.change(c.target, window.Delete))
			}
		}
	}
	s.mu.Unlock()
	s.hand(ctx, seen, changes, false)
}

// replace takes a complete list: objects that were seen before are compared with
// what was seen, those that never were wait for the baseline (C9).
func (s *source) replace(ctx context.Context, objects []*unstructured.Unstructured, resourceVersion string) {
	listed := make(map[string]bool, len(objects))
	for _, u := range objects {
		listed[u.GetName()] = true
	}
	s.mu.Lock()
	var missing []string
	for name := range s.records {
		if !listed[name] {
			missing = append(missing, name)
		}
	}
	s.mu.Unlock()
	slices.Sort(missing)
	for _, name := range missing {
		s.gone(ctx, name, resourceVersion)
	}

	// Those that changed are handed on in the order of their writes.
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return compareVersions(a.GetResourceVersion(), b.GetResourceVersion())
	})
	fresh := false
	for _, u := range objects {
		s.mu.Lock()
		old, known := s.records[u.GetName()]
		s.mu.Unlock()
		if known && old.uid == u.GetUID() {
			s.observe(ctx, u, time.Time{})
			continue
		}
		if known {
			s.gone(ctx, u.GetName(), u.GetResourceVersion())
		}
		seen := s.look(ctx, u)
		s.mu.Lock()
		s.records[u.GetName()] = record{
			uid: seen.uid, resourceVersion: seen.version, digest: seen.digest, deleting: seen.deleting, members: s.toldBefore(seen),
		}
		s.mu.Unlock()
		fresh = true
	}

	s.mu.Lock()
	first := !s.synced
	s.synced, s.from = true, nil
	if first || compareVersions(s.position, resourceVersion) < 0 {
		s.position = resourceVersion
	}
	// With the position: a place that covers objects nobody was told of must not say that
	// they were compared.
	var targets []types.NamespacedName
	// The watch did not go on from the place, at least not for long: of what is gone by
	// now some may be known to the targets alone.
	gap := !first && s.pastUnknown
	if gap {
		s.pastUnknown = false
	}
	if fresh || first || gap {
		for _, c := range s.claims {
			if !first {
				c.wanted++
			}
			if c.done < c.wanted {
				targets = append(targets, c.target)
			}
		}
	}
	s.mu.Unlock()
	if first {
		// Before anything of the source is handed on: what is taken of it then comes after
		// the place, also in the next process.
		s.capture.savePlace(s)
	}
	for _, target := range targets {
		s.capture.startBaseline(ctx, target)
	}
	s.capture.changed.wake()
}

// toldBefore are the claims whose targets the process before this one has told of an
// object that is listed as it was then.
// Caller must hold mu.
func (s *source) toldBefore(seen sight) []*claim {
	if s.from == nil || !seen.captured || seen.deleting {
		return nil
	}
	var told []*claim
	for _, c := range s.claims {
		if c.settled() && c.selects(seen.object.Name, seen.labels) {
			told = append(told, c)
		}
	}
	return s.shared(told)
}

// change is what a sight means to a target.
func (v sight) change(target types.NamespacedName, operation window.Operation) window.Change {
	c := window.Change{Target: target, Object: v.object, UID: v.uid, ResourceVersion: cmp.Or(v.goneBy, v.version), Operation: operation}
	if operation != window.Delete {
		c.Manifest = v.manifest
	}
	return c
}

// advance notes that the watch has come to this resourceVersion.
func (s *source) advance(resourceVersion string) {
	s.mu.Lock()
	if compareVersions(s.position, resourceVersion) < 0 {
		s.position = resourceVersion
	}
	s.mu.Unlock()
	s.capture.changed.wake()
}

// lastWriteIsIntent reports whether the last write to the object was one of its
// intent, not of its status, as far as the object itself tells.
func lastWriteIsIntent(u *unstructured.Unstructured) bool {
	var status, intent time.Time
	entries := u.GetManagedFields()
	if len(entries) == 0 {
		_, has := u.Object["status"]
		return !has
	}
	for _, entry := range entries {
		switch {
		case entry.Time == nil:
		case entry.Subresource == "status":
			status = later(status, entry.Time.Time)
		default:
			intent = later(intent, entry.Time.Time)
		}
	}
	return intent.After(status)
}

// lastWrite returns when the object was last written, as far as it tells.
func lastWrite(u *unstructured.Unstructured) time.Time {
	t := u.GetCreationTimestamp().Time
	for _, entry := range u.GetManagedFields() {
		if entry.Time != nil {
			t = later(t, entry.Time.Time)
		}
	}
	return t
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// shared returns the members in a slice that many records share: most objects of a
// source have the same.
// Caller must hold mu.
func (s *source) shared(members []*claim) []*claim {
	if !slices.Equal(s.common, members) {
		s.common = members
	}
	return s.common
}

// compareVersions orders resourceVersions of one resource. One that is not of the
// usual form sorts first.
func compareVersions(a, b string) int {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err == nil {
		return order
	}
	if _, err := resourceversion.CompareResourceVersion(a, a); err != nil {
		if _, err := resourceversion.CompareResourceVersion(b, b); err != nil {
			return cmp.Compare(a, b)
		}
		return -1
	}
	return 1
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
