// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import "container/list"

// Touched are the names of the windows that are not as they were at the last
// call: they opened, took a change, were claimed, close at another time, or are
// not open any more. Each is named once, in the order in which they were touched
// last; Window says what has become of each. Nil if nothing was touched.
//
// A window that opened and closed since the last call is not named: who looks by
// means of Touched has not seen it. So what is kept between two calls, however
// far apart they are, is bounded by the windows that were open at the first and
// those that are open at the second.
func (e *Engine) Touched() []string { return e.touched.drain() }

// touched are the names of windows that were touched since the last drain. It
// keeps names, not windows: those that closed are let go of.
type touched struct {
	names list.List
	// round counts the drains. What a window says of another round is out of date.
	round uint64
}

// open adds a window that has just been opened.
func (t *touched) open(w *window) {
	w.openedIn = t.round
	t.add(w)
}

// add makes w the one that was touched last.
func (t *touched) add(w *window) {
	if w.touch != nil && w.touchedIn == t.round {
		t.names.MoveToBack(w.touch)
		return
	}
	w.touch, w.touchedIn = t.names.PushBack(w.name), t.round
}

// close adds a window that is about to be gone, or drops it if nobody has seen
// it.
func (t *touched) close(w *window) {
	if w.openedIn == t.round {
		t.names.Remove(w.touch)
		return
	}
	t.add(w)
}

// drain takes the names out, the one that was touched last at the end.
func (t *touched) drain() []string {
	t.round++
	if t.names.Len() == 0 {
		return nil
	}
	names := make([]string, 0, t.names.Len())
	for first := t.names.Front(); first != nil; first = t.names.Front() {
		names = append(names, t.names.Remove(first).(string))
	}
	return names
}
