// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"container/list"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

// defaultCacheBytes holds the trees of a repository of well over 100,000 files.
const defaultCacheBytes = 64 << 20

// objectOverhead is what an entry costs beyond its data: map slot, list element, headers.
const objectOverhead = 200

// cache keeps objects by hash, the most recently used ones, within a number of
// bytes. It never has to be told that something changed: objects do not. Safe
// for concurrent use.
type cache struct {
	limit int64

	mu      sync.Mutex // protects the fields below
	size    int64
	entries map[plumbing.Hash]*list.Element
	recent  *list.List // of cached, the most recently used in front
}

type cached struct {
	object

	hash plumbing.Hash
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, entries: map[plumbing.Hash]*list.Element{}, recent: list.New()}
}

func (c *cache) get(h plumbing.Hash) (object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[h]
	if !ok {
		return object{}, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(cached).object, true
}

// put keeps the object; one that would push out most of the others is not kept.
func (c *cache) put(h plumbing.Hash, o object) {
	cost := int64(len(o.data)) + objectOverhead
	if cost > c.limit/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[h]; ok {
		c.recent.MoveToFront(e)
		return
	}
	c.entries[h] = c.recent.PushFront(cached{object: o, hash: h})
	c.size += cost
	for c.size > c.limit {
		last := c.recent.Back()
		gone := c.recent.Remove(last).(cached)
		delete(c.entries, gone.hash)
		c.size -= int64(len(gone.data)) + objectOverhead
	}
}
