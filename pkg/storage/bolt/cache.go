// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// cacheBytes bounds what the cache of one file holds, by estimate.
const cacheBytes = 64 << 20

// decodedFactor is how much larger than its encoding an object is taken to be,
// that encoding included.
const decodedFactor = 4

// decodedCache remembers what lists have decoded: decoding is nearly all that a list
// costs. It is asked only about a revision that was just read from the file, and
// answers only if that and the decrypted bytes are what was decoded, so it is
// never late, and nothing has to be taken out for the answers to be right.
// Safe for concurrent use.
type decodedCache struct {
	mu      sync.RWMutex
	entries map[string]*cachedObject
	size    int
}

// cachedObject is one object at one revision. Nobody writes to it.
type cachedObject struct {
	rev    uint64
	key    string
	stored []byte
	by     *store // whose codec has decoded it
	data   []byte // decrypted: stored itself where nothing is encrypted
	object runtime.Object
}

func newCache() *decodedCache { return &decodedCache{entries: map[string]*cachedObject{}} }

// get returns nil unless it is that revision that was decoded.
func (c *decodedCache) get(key []byte, rev uint64) *cachedObject {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if o := c.entries[string(key)]; o != nil && o.rev == rev {
		return o
	}
	return nil
}

// put keeps o, which comes from now on to be read only, in place of others if
// there is no room, but not of a newer revision.
func (c *decodedCache) put(o *cachedObject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.cost() > cacheBytes/16 {
		return
	}
	if old := c.entries[o.key]; old != nil {
		if old.rev > o.rev {
			return
		}
		c.remove(old)
	}
	// Which ones go is left to chance: a walk over more than there is room for
	// would find nothing where the oldest ones go.
	for _, other := range c.entries {
		if c.size+o.cost() <= cacheBytes {
			break
		}
		c.remove(other)
	}
	c.entries[o.key] = o
	c.size += o.cost()
}

// forget drops what is no longer there.
func (c *decodedCache) forget(events []*event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range events {
		if old := c.entries[e.key]; old != nil && old.rev < e.rev {
			c.remove(old)
		}
	}
}

// remove drops one entry. Caller must hold mu.
func (c *decodedCache) remove(o *cachedObject) {
	delete(c.entries, o.key)
	c.size -= o.cost()
}

func (o *cachedObject) cost() int { return decodedFactor * len(o.data) }

// answers says whether o is what s would decode from data into an object of type t.
func (o *cachedObject) answers(s *store, data []byte, t reflect.Type) bool {
	return o != nil && o.by == s && reflect.TypeOf(o.object) == t && bytes.Equal(o.data, data)
}
