// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"container/heap"
	"time"
)

// timed is what a timer belongs to: a waiting request or an open window.
type timed interface {
	// deadline is when it falls due; false while nothing limits it.
	deadline() (time.Time, bool)
	// rank orders what falls due at the same instant: requests before windows
	// (W8), and each in the order in which they came.
	rank() (class int, seq uint64)
}

// timer is an entry of timers. Its zero value is not armed.
type timer struct {
	owner timed
	// due is what the heap is ordered by. It is never later than the owner's
	// deadline, but may be earlier: a deadline that moved away (each change restarts
	// the silence, W11) is corrected only when the entry comes up.
	due time.Time
	// position in the heap plus one, so that zero means not in it.
	position int
}

// timers are the deadlines of all windows and requests of an engine.
type timers struct{ entries timerHeap }

// schedule makes t ring at its owner's deadline, or never when it has none.
func (ts *timers) schedule(t *timer) {
	due, ok := t.owner.deadline()
	switch {
	case !ok:
		ts.stop(t)
	case t.position == 0:
		t.due = due
		heap.Push(&ts.entries, t)
	case due.Before(t.due):
		t.due = due
		heap.Fix(&ts.entries, t.position-1)
	}
}

// stop disarms t.
func (ts *timers) stop(t *timer) {
	if t.position != 0 {
		heap.Remove(&ts.entries, t.position-1)
	}
}

// next is the timer that rings first, with its true deadline; nil when none is
// armed.
func (ts *timers) next() *timer {
	for len(ts.entries) > 0 {
		first := ts.entries[0]
		due, ok := first.owner.deadline()
		switch {
		case !ok:
			ts.stop(first)
		case due.Equal(first.due):
			return first
		default:
			first.due = due
			heap.Fix(&ts.entries, 0)
		}
	}
	return nil
}

// timerHeap implements heap.Interface.
type timerHeap []*timer

var _ heap.Interface = (*timerHeap)(nil)

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if c := h[i].due.Compare(h[j].due); c != 0 {
		return c < 0
	}
	classI, seqI := h[i].owner.rank()
	classJ, seqJ := h[j].owner.rank()
	if classI != classJ {
		return classI < classJ
	}
	return seqI < seqJ
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.position = len(*h)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.position = 0
	return t
}
