// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"cmp"
	"slices"
	"sync"
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
// to it is on disk. Publishing never waits for a watcher: it replaces the
// changed channel by closing it, and each watcher reads on from its own cursor.
type feed struct {
	mu       sync.RWMutex
	rev      uint64
	after    uint64   // events holds every event in (after, rev]
	events   []*event // ascending; elements are never overwritten
	bytes    int
	changed  chan struct{}
	progress uint64 // how often a bookmark was asked for
}

func newFeed(rev uint64) *feed {
	return &feed{rev: rev, after: rev, changed: make(chan struct{})}
}

func (f *feed) revision() uint64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.rev
}

// publish adds the events of the revisions (from, rev].
func (f *feed) publish(from, rev uint64, events []*event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rev == f.rev {
		return
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
	f.wake()
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

// wake tells every watcher to look again. Caller must hold mu.
func (f *feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *feed) requestProgress() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.progress++
	f.wake()
}

// news is what a watcher finds.
type news struct {
	events   []*event
	upTo     uint64          // complete up to here
	inMemory bool            // false: the file has to be asked
	changed  <-chan struct{} // closed at the next change
	progress uint64
}

func (f *feed) since(cursor uint64) news {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := news{upTo: f.rev, inMemory: cursor >= f.after, changed: f.changed, progress: f.progress}
	if n.inMemory && cursor < f.rev {
		i, _ := slices.BinarySearchFunc(f.events, cursor+1, func(e *event, rev uint64) int { return cmp.Compare(e.rev, rev) })
		n.events = f.events[i:len(f.events):len(f.events)]
	}
	return n
}
