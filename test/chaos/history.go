// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"slices"
	"sync"
)

// Outcome of what an author tried.
type Outcome int

// An edit is Unknown when the connection broke and nothing tells any more whether it
// was done: its object is gone.
const (
	Refused Outcome = iota
	Accepted
	Unknown
)

// Object is a ConfigMap.
type Object struct{ Namespace, Name string }

func (o Object) String() string { return o.Namespace + "/" + o.Name }

// Edit is one that an author tried.
type Edit struct {
	// Token is unique. But for a deletion it is the key and the value of the line that
	// the edit adds.
	Token  string
	Delete bool
	Author string
	Object Object
	// Sequence counts what its author did, saves included.
	Sequence int
	Outcome  Outcome
	// Blind: made around a restart of kube-apiserver, which then no longer tells of each
	// version, nor of each user.
	Blind bool
	// ResourceVersion orders the accepted edits of an object. 0: accepted, but when is
	// not known, or a deletion, which is the last.
	ResourceVersion uint64
}

// Save is a CommitRequest that an author tried to create.
type Save struct {
	Object   // its own namespace and name
	Author   string
	Sequence int
	// Message is unique, or empty.
	Message string
	// Acknowledged: the server said that it is created.
	Acknowledged bool
}

// History is what the authors did. Safe for concurrent use.
type History struct {
	mu    sync.Mutex
	edits []Edit
	saves []Save
	blind bool
}

// setBlind says whether the edits from now on are made blindly.
func (h *History) setBlind(blind bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.blind = blind
}

func (h *History) addEdit(e Edit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Blind = h.blind
	h.edits = append(h.edits, e)
}

func (h *History) addSave(s Save) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.saves = append(h.saves, s)
}

// Edits in the order in which their outcomes were known.
func (h *History) Edits() []Edit {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.edits)
}

// Saves in the order in which they were answered.
func (h *History) Saves() []Save {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.saves)
}
