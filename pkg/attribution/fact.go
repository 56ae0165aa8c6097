// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Evidence is how much a fact proves; see the package comment. The zero value is
// Proven, so a fact from a better source than audit needs to say nothing.
type Evidence uint8

// The degrees of evidence, strongest first.
const (
	Proven Evidence = iota
	Likely
	Possible
)

// String is the metric label of the degree.
func (e Evidence) String() string {
	switch e {
	case Proven:
		return "proven"
	case Likely:
		return "likely"
	default:
		return "possible"
	}
}

// Verbs of facts, as RBAC and audit spell them.
const (
	verbCreate           = "create"
	verbUpdate           = "update"
	verbPatch            = "patch"
	verbDelete           = "delete"
	verbDeleteCollection = "deletecollection"
)

// Fact is "Username caused this version of this object", taken from one audit
// event (C5, C6). It is plain data and can be stored as JSON. Which fields are set
// decides what it joins by (C7):
//
//   - UID and ResourceVersion: that version;
//   - UID and a deletion verb: the deletion of that object, whatever its version;
//   - no UID and verb delete: the deletion of the named object;
//   - no UID and verb deletecollection: deletions within the scope.
//
// Anything else joins nothing.
type Fact struct {
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Username is the impersonated user when there was one (C6).
	Username string `json:"username"`
	// Verb is create, update, patch, delete or deletecollection. An eviction is a
	// delete.
	Verb     string `json:"verb"`
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource,omitempty"`
	// Subresource marks facts that say nothing about the rest of the object, such as
	// those of "status" (C3).
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// LabelSelector and FieldSelector narrow the scope of a deletecollection.
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Time is when kube-apiserver received the request, by its own clock.
	Time time.Time `json:"time,omitzero"`
	// Completed is when the response was complete, by the same clock. Zero is the same
	// as Time.
	Completed time.Time `json:"completed,omitzero"`
	Evidence  Evidence  `json:"evidence,omitempty"`
	// Source is the address that the event was posted from. Times of one source are
	// compared exactly, those of different sources within the clock skew.
	Source string `json:"source,omitempty"`
}

// isDeletion reports whether the fact is about an object's end.
func (f *Fact) isDeletion() bool {
	return f.Verb == verbDelete || f.Verb == verbDeleteCollection
}

func (f *Fact) object() objectKey {
	return objectKey{f.Group, f.Resource, f.Namespace, f.Name}
}

// Version is one state of one object as capture saw it.
type Version struct {
	UID             types.UID
	ResourceVersion string
	Group           string
	Resource        string
	Namespace       string
	Name            string
	// Deleted says that the change is the request to delete the object (C4). It is set
	// from the deletionTimestamp on.
	Deleted bool
	// Seen is when a watch delivered the version just written. Zero means that the
	// version comes from a list and may be of any age; then only facts that need no
	// timing are believed. Joiner.Submit sets it.
	Seen time.Time
	// Labels are the object's own; they are needed only to join a deletecollection
	// that had a selector and whose response was not recorded.
	Labels map[string]string
}

func (v *Version) object() objectKey {
	return objectKey{v.Group, v.Resource, v.Namespace, v.Name}
}

// objectKey names an object, whichever incarnation of it.
type objectKey struct {
	group, resource, namespace, name string
}
