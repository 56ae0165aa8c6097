// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// window is the open, growing set of one author's changes on one target.
type window struct {
	name    string
	target  *target
	key     Author
	seq     uint64
	request *request
	changes []Change
	bytes   int64
	opened  time.Time
	// attached is when the request took it; only with a request.
	attached time.Time
	// quietSince is the last change, or the attach if that was later (W11).
	quietSince time.Time
	timer      timer
}

var _ timed = (*window)(nil)

// deadline is when it closes by itself: by the target's timers, or by its
// request's once that has caught up (W11, DESIGN 5.5).
func (w *window) deadline() (time.Time, bool) {
	if r := w.request; r != nil {
		due := w.attached.Add(r.MaxDuration)
		if r.IdleTimeout > 0 {
			due = earlier(due, w.quietSince.Add(r.IdleTimeout))
		}
		return due, r.caughtUp
	}
	idle, limited := w.target.IdleTimeout > 0, w.target.MaxDuration > 0
	idleDue, maxDue := w.quietSince.Add(w.target.IdleTimeout), w.opened.Add(w.target.MaxDuration)
	switch {
	case idle && limited:
		return earlier(idleDue, maxDue), true
	case idle:
		return idleDue, true
	default:
		return maxDue, limited
	}
}

func (w *window) rank() (int, uint64) { return 1, w.seq }

// cause says which of its timers made it fall due.
func (w *window) cause() Cause {
	due, _ := w.deadline()
	switch {
	case w.request != nil:
		return CauseRequest
	case w.target.IdleTimeout > 0 && due.Equal(w.quietSince.Add(w.target.IdleTimeout)):
		return CauseIdle
	}
	return CauseMaxDuration
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// collect puts c into its author's window, and opens that if need be.
func (e *Engine) collect(t *target, c Change, now time.Time) {
	key := t.keyOfChange(c.Author)
	if held, ok := t.objects[c.Object]; ok && held.window.key != key {
		e.close(held.window, CauseObjectTaken, now)
	}
	w := t.windows[key]
	if w != nil && e.exceeds(w.bytes+w.growth(c)) {
		e.close(w, CauseSizeLimit, now)
		w = nil
	}
	if w != nil {
		w.put(c)
		w.quietSince = now
		e.timers.schedule(&w.timer)
		return
	}
	w = e.open(t, key, now)
	w.put(c)
	if r := t.first(key); r != nil {
		e.attach(w, r, now)
	} else {
		e.timers.schedule(&w.timer)
	}
	if e.exceeds(w.bytes) {
		e.close(w, CauseSizeLimit, now)
	}
}

func (e *Engine) exceeds(bytes int64) bool {
	return e.config.MaxBytes > 0 && bytes > e.config.MaxBytes
}

// open makes an empty window, which the caller fills at once (W1).
func (e *Engine) open(t *target, key Author, now time.Time) *window {
	e.seq++
	w := &window{
		name:       e.newName(t.Name, key),
		target:     t,
		key:        key,
		seq:        e.seq,
		opened:     now,
		quietSince: now,
	}
	w.timer.owner = w
	t.windows[key] = w
	t.lastOpened = w.seq
	return w
}

// growth is how many bytes more w holds after put(c).
func (w *window) growth(c Change) int64 {
	grown := int64(len(c.Manifest))
	if held, ok := w.target.objects[c.Object]; ok && held.window == w {
		grown -= int64(len(w.changes[held.index].Manifest))
	}
	return grown
}

// put keeps the last write to each object, in the place where the object was
// first seen (W4).
func (w *window) put(c Change) {
	w.bytes += w.growth(c)
	if held, ok := w.target.objects[c.Object]; ok {
		c.Operation = fold(w.changes[held.index].Operation, c.Operation)
		w.changes[held.index] = c
		return
	}
	w.target.objects[c.Object] = holding{window: w, index: len(w.changes)}
	w.changes = append(w.changes, c)
}

// fold is what two writes to one object come to, as seen from before the first.
func fold(first, last Operation) Operation {
	switch {
	case last == Delete:
		return Delete
	case first == Create:
		return Create
	}
	return Update
}

// close ends w, whatever the cause (W5): its changes, its request and that
// one's message go on together as one write. A suspended target commits nothing,
// so there the changes are dropped and the request fails (W18).
func (e *Engine) close(w *window, cause Cause, now time.Time) {
	t := w.target
	e.timers.stop(&w.timer)
	delete(t.windows, w.key)
	for _, c := range w.changes {
		delete(t.objects, c.Object)
	}
	if len(t.objects) == 0 {
		t.objects = map[Object]holding{} // a map keeps the room of what was deleted from it
	}

	write := Write{
		Name:    w.name,
		Kind:    WindowWrite,
		Target:  t.Name,
		Author:  w.key,
		Changes: w.changes,
		Cause:   cause,
		Opened:  w.opened,
		Closed:  now,
	}
	r := w.request
	if r != nil {
		asked := r.Request
		write.Request, write.Author = &asked, r.requester()
	}
	if cause == CauseSuspended {
		e.emit(Discarded{Write: write})
		if r != nil {
			e.resolve(r, v1alpha1.ReasonTargetSuspended)
		}
		return
	}
	e.emit(Closed{Write: write})
	if r != nil {
		e.release(r)
	}
}

// Snapshot is an open window as it is now.
type Snapshot struct {
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

func (w *window) snapshot() Snapshot {
	s := Snapshot{
		Name:    w.name,
		Target:  w.target.Name,
		Author:  w.key,
		Changes: slices.Clone(w.changes),
		Bytes:   w.bytes,
		Opened:  w.opened,
	}
	if due, ok := w.deadline(); ok {
		s.Closes = due
	}
	if w.request != nil {
		ref := w.request.RequestRef
		s.Request = &ref
	}
	return s
}
