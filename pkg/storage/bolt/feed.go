// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// Bounds of the events kept in memory for one resource. A watcher further
// behind reads them from the file.
const (
	feedEvents = 1024
	feedBytes  = 4 << 20
)

// event is one write as a watcher sees it, still encoded. It is shared by all
// watchers and never changed once published.
type event struct {
	rev              uint64
	key              string
	created, deleted bool
	value, prevValue []byte

	// What the first watcher to need them decoded value and prevValue into.
	object, prevObject memo
}

// feed holds the newest events of one resource, and its revision: everything up
// to it is on disk. Publishing never waits for a watcher: it wakes each, and they
// read on from their own cursors.
type feed struct {
	mu       sync.RWMutex
	rev      uint64
	after    uint64   // events holds every event in (after, rev]
	events   []*event // ascending; elements are never overwritten
	bytes    int
	progress uint64 // how often a bookmark was asked for

	watchersMu sync.Mutex // protects watchers
	watchers   map[*watcher]struct{}
	crowd      atomic.Int64 // of watchers
}

func newFeed(rev uint64) *feed {
	return &feed{rev: rev, after: rev, watchers: map[*watcher]struct{}{}}
}

func (f *feed) revision() uint64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.rev
}

// publish adds the events of the revisions (from, rev].
func (f *feed) publish(from, rev uint64, events []*event) {
	if f.add(from, rev, events) {
		f.wake()
	}
}

// add reports whether there is anything new.
func (f *feed) add(from, rev uint64, events []*event) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rev == f.rev {
		return false
	}
	if from != f.rev {
		// A commit that the disk failed was there after all; its events are
		// in the file.
		f.events, f.bytes, f.after = nil, 0, from
	}
	f.rev = rev
	f.events = append(f.events, events...)
	for _, e := range events {
		f.bytes += len(e.value) + len(e.prevValue)
	}
	if len(f.events) > 2*feedEvents || f.bytes > 2*feedBytes {
		f.trim()
	}
	return true
}

// trim halves what is kept, into a new slice: watchers read the old one without
// the lock. Caller must hold mu.
func (f *feed) trim() {
	n := 0
	for len(f.events)-n > feedEvents || (f.bytes > feedBytes && n < len(f.events)) {
		f.bytes -= len(f.events[n].value) + len(f.events[n].prevValue)
		f.after = f.events[n].rev
		n++
	}
	f.events = slices.Clone(f.events[n:])
}

// wake tells every watcher to look again.
func (f *feed) wake() {
	f.watchersMu.Lock()
	defer f.watchersMu.Unlock()
	for w := range f.watchers {
		w.wake()
	}
}

func (f *feed) join(w *watcher) {
	f.watchersMu.Lock()
	defer f.watchersMu.Unlock()
	f.watchers[w] = struct{}{}
	f.crowd.Add(1)
}

func (f *feed) leave(w *watcher) {
	f.watchersMu.Lock()
	defer f.watchersMu.Unlock()
	delete(f.watchers, w)
	f.crowd.Add(-1)
}

func (f *feed) requestProgress() {
	f.mu.Lock()
	f.progress++
	f.mu.Unlock()
	f.wake()
}

// news is what a watcher finds.
type news struct {
	events   []*event
	upTo     uint64 // complete up to here
	inMemory bool   // false: the file has to be asked
	progress uint64
}

func (f *feed) since(cursor uint64) news {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := news{upTo: f.rev, inMemory: cursor >= f.after, progress: f.progress}
	if n.inMemory && cursor < f.rev {
		i, _ := slices.BinarySearchFunc(f.events, cursor+1, func(e *event, rev uint64) int { return cmp.Compare(e.rev, rev) })
		n.events = f.events[i:len(f.events):len(f.events)]
	}
	return n
}
