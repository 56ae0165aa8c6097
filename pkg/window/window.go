// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"container/list"
	"time"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// window is the open, growing set of one author's changes on one target. What a
// change to it needs stands together: of 10,000 windows few are in the processor's
// caches.
type window struct {
	key     Author
	target  *target
	request *request
	changes []Change
	// quietSince is the last change, or the attach if that was later (W11).
	quietSince time.Time
	timer      timer
	bytes      int64
	// touch is its place among the touched, in the round touchedIn; see touched.
	touch     *list.Element
	touchedIn uint64
	opened    time.Time
	// attached is when the request took it; only with a request.
	attached time.Time
	name     string
	seq      uint64
	openedIn uint64
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
	held, ok := t.objects[c.Object]
	if ok && held.window.key != key {
		e.close(held.window, CauseObjectTaken, now)
		ok = false
	}
	var w *window
	if ok {
		w = held.window
	} else {
		w, held.index = t.windows[key], newObject
	}
	if w != nil && e.exceeds(w.bytes+w.growth(c, held.index)) {
		e.close(w, CauseSizeLimit, now)
		w = nil
	}
	if w != nil {
		e.put(w, c, held.index)
		w.quietSince = now
		e.timers.schedule(&w.timer)
		e.touched.add(w)
		return
	}
	w = e.open(t, key, now)
	e.put(w, c, newObject)
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
	e.windows[w.name] = w
	e.touched.open(w)
	e.emit(Opened{Window: w.name, Target: t.Name, Author: key, Sequence: w.seq})
	return w
}

// newObject is the index of an object that a window does not hold.
const newObject = -1

// growth is how many bytes more w holds after put(c, index).
func (w *window) growth(c Change, index int) int64 {
	grown := int64(len(c.Manifest))
	if index != newObject {
		grown -= int64(len(w.changes[index].Manifest))
	}
	return grown
}

// put keeps the last write to each object, in the place where the object was
// first seen (W4).
func (e *Engine) put(w *window, c Change, index int) {
	w.bytes += w.growth(c, index)
	if index != newObject {
		c.Operation = fold(w.changes[index].Operation, c.Operation)
		w.changes[index] = c
	} else {
		index = len(w.changes)
		w.target.objects[c.Object] = holding{window: w, index: index}
		w.changes = append(w.changes, c)
	}
	e.emit(Collected{Window: w.name, Index: index, Change: c})
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
	e.touched.close(w)
	delete(e.windows, w.name)
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
		write.Request, write.Author, write.CutShort = &asked, r.requester(), !r.caughtUp
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
