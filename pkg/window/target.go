// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"cmp"
	"container/list"
	"slices"
)

// target is a GitTarget with what is open and who waits on it.
type target struct {
	Target

	// windows are the open ones, by key (W2).
	windows map[Author]*window
	// objects says which open window holds an object (W3).
	objects map[Object]holding
	// waiting are the requests without a window, by key, in the order of registration
	// (W9). An empty queue is removed.
	waiting map[Author]*list.List
	// active is the one request of a requester that waits or collects (W10).
	active map[Author]*request
	// lastOpened is the seq of the latest window: enough to know what a request could
	// have noted (W12), without telling each that waits of each opening.
	lastOpened uint64
}

// holding is an object's place in an open window.
type holding struct {
	window *window
	index  int
}

func newTarget(t Target) *target {
	return &target{
		Target:  t,
		windows: map[Author]*window{},
		objects: map[Object]holding{},
		waiting: map[Author]*list.List{},
		active:  map[Author]*request{},
	}
}

// key is the author whose window a is about: a's own, or nobody's where all share
// one.
func (t *target) key(a Author) Author {
	if t.Shared {
		return Author{}
	}
	return a
}

// keyOfChange is the window that a change by a goes into. Whoever has no name is
// unresolved (W20).
func (t *target) keyOfChange(a Author) Author {
	if a.Unresolved || a.Username == "" {
		a = Unresolved
	}
	return t.key(a)
}

// mismatched says whether r noted a window that it cannot have (W12). Its own
// author's would have been given to it; so where each author has a window, any
// that opened while it waits is foreign, and where all share one none is.
func (t *target) mismatched(r *request) bool {
	return r.mismatch || !t.Shared && t.lastOpened > r.seq
}

func (t *target) enqueue(key Author, r *request) {
	queue := t.waiting[key]
	if queue == nil {
		queue = list.New()
		t.waiting[key] = queue
	}
	r.queued = queue.PushBack(r)
}

func (t *target) dequeue(r *request) {
	if r.queued == nil {
		return
	}
	key := t.key(r.requester())
	queue := t.waiting[key]
	queue.Remove(r.queued)
	r.queued = nil
	if queue.Len() == 0 {
		delete(t.waiting, key)
	}
}

// first is the request that waits longest for a window of key (W9).
func (t *target) first(key Author) *request {
	if queue := t.waiting[key]; queue != nil {
		return queue.Front().Value.(*request)
	}
	return nil
}

// waitingInOrder are the requests without a window in the order of registration.
func (t *target) waitingInOrder() []*request {
	var waiting []*request
	for _, r := range t.active {
		if r.window == nil {
			waiting = append(waiting, r)
		}
	}
	slices.SortFunc(waiting, func(a, b *request) int { return cmp.Compare(a.seq, b.seq) })
	return waiting
}

// share switches between one window for all and one per author. No window is
// open meanwhile; who waits keeps its place and what it has noted.
func (t *target) share(shared bool) {
	waiting := t.waitingInOrder()
	for _, r := range waiting {
		r.mismatch = t.mismatched(r)
		t.dequeue(r)
	}
	t.Shared = shared
	t.lastOpened = 0
	for _, r := range waiting {
		t.enqueue(t.key(r.requester()), r)
	}
}
