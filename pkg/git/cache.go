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

// blobShare is the part of a cache that blobs may take, one in so many: a blob is
// needed when its file is edited again, which mostly is soon or never. Trees and
// commits are needed all the time.
const blobShare = 8

// objectOverhead is what an entry costs beyond its data: map slot, list element, headers.
const objectOverhead = 200

// cache keeps objects by hash, the most recently used ones, within a number of
// bytes. It never has to be told that something changed: objects do not. Safe
// for concurrent use.
type cache struct {
	blobs, others *shelf
}

func newCache(limit int64) *cache {
	return &cache{blobs: newShelf(limit / blobShare), others: newShelf(limit - limit/blobShare)}
}

func (c *cache) get(h plumbing.Hash) (object, bool) {
	if o, ok := c.others.get(h); ok {
		return o, true
	}
	return c.blobs.get(h)
}

// put keeps the object; one that would push out most of the others is not kept.
func (c *cache) put(h plumbing.Hash, o object) {
	if o.kind == plumbing.BlobObject {
		c.blobs.put(h, o)
		return
	}
	c.others.put(h, o)
}

// shelf is a cache of objects that are worth the same.
type shelf struct {
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

func newShelf(limit int64) *shelf {
	return &shelf{limit: limit, entries: map[plumbing.Hash]*list.Element{}, recent: list.New()}
}

func (s *shelf) get(h plumbing.Hash) (object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[h]
	if !ok {
		return object{}, false
	}
	s.recent.MoveToFront(e)
	return e.Value.(cached).object, true
}

// put keeps the object; one that would push out most of the others is not kept.
func (s *shelf) put(h plumbing.Hash, o object) {
	cost := int64(len(o.data)) + objectOverhead
	if cost > s.limit/4 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[h]; ok {
		s.recent.MoveToFront(e)
		return
	}
	s.entries[h] = s.recent.PushFront(cached{object: o, hash: h})
	s.size += cost
	for s.size > s.limit {
		last := s.recent.Back()
		gone := s.recent.Remove(last).(cached)
		delete(s.entries, gone.hash)
		s.size -= int64(len(gone.data)) + objectOverhead
	}
}
