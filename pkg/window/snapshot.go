// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is an open window as it is now. It shares nothing with the window but
// the manifests.
type Snapshot struct {
	// Name is unique within the engine's lifetime.
	Name   string
	Target types.NamespacedName
	// Author is the zero Author where all share one window.
	Author Author
	// Request is the one that holds it; nil while it is unclaimed.
	Request *RequestRef
	// Changes in the order in which their objects were first seen.
	Changes []Change
	// Bytes of content that it holds.
	Bytes  int64
	Opened time.Time
	// Closes is when it closes by itself if nothing changes any more; zero while it
	// catches up (DESIGN 5.5) or has no timer.
	Closes time.Time
}

// Windows are the open windows, in the order in which they were opened. It copies
// what each of them holds.
func (e *Engine) Windows() []Snapshot {
	var open []Snapshot
	for _, w := range e.inOrder() {
		open = append(open, w.snapshot())
	}
	return open
}

// Window is the open window of that name; false if there is none, any more or
// yet. It copies what that one holds, and looks at no other.
func (e *Engine) Window(name string) (Snapshot, bool) {
	w := e.windows[name]
	if w == nil {
		return Snapshot{}, false
	}
	return w.snapshot(), true
}

// Open are the changes that open windows of a target hold, each object once (W3).
func (e *Engine) Open(target types.NamespacedName) []Change {
	t := e.targets[target]
	if t == nil {
		return nil
	}
	var open []Change
	for _, w := range t.inOrder() {
		open = append(open, w.changes...)
	}
	return open
}

func (e *Engine) inOrder() []*window { return inOrder(maps.Values(e.windows)) }

func (t *target) inOrder() []*window { return inOrder(maps.Values(t.windows)) }

// inOrder are windows in the order in which they were opened.
func inOrder(windows iter.Seq[*window]) []*window {
	return slices.SortedFunc(windows, func(a, b *window) int { return cmp.Compare(a.seq, b.seq) })
}

func (w *window) snapshot() Snapshot {
	s := Snapshot{
		Name:    w.name,
		Target:  w.target.Name,
		Author:  w.key,
		Changes: slices.Clone(w.changes),
		Bytes:   w.bytes,
		Opened:  w.opened,
		Closes:  w.closes(),
	}
	if w.request != nil {
		ref := w.request.RequestRef
		s.Request = &ref
	}
	return s
}

// closes is when w closes by itself; zero if nothing limits it now.
func (w *window) closes() time.Time {
	due, ok := w.deadline()
	if !ok {
		return time.Time{}
	}
	return due
}
