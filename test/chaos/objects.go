// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// objects are those that can be edited: each author's own, and the shared ones. A name
// is given once, and taken away for a deletion once. Safe for concurrent use.
type objects struct {
	mu    sync.Mutex
	given int
	alive map[pool][]Object
}

// pool is the objects of one author, or with none the shared ones, in a namespace.
type pool struct{ namespace, author string }

func newObjects() *objects { return &objects{alive: map[pool][]Object{}} }

// name one that does not exist yet.
func (o *objects) name(p pool) Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.given++
	who := p.author
	if who == "" {
		who = "shared"
	}
	return Object{Namespace: p.namespace, Name: fmt.Sprintf("%s-%d", who, o.given)}
}

// add one that exists now.
func (o *objects) add(p pool, object Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alive[p] = append(o.alive[p], object)
}

func (o *objects) count(p pool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.alive[p])
}

// pick one at random; false when there is none.
func (o *objects) pick(random *rand.Rand, p pool) (Object, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.alive[p]) == 0 {
		return Object{}, false
	}
	return o.alive[p][random.IntN(len(o.alive[p]))], true
}

// take one at random out, for the one deletion that it will see.
func (o *objects) take(random *rand.Rand, p pool) (Object, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.alive[p]) == 0 {
		return Object{}, false
	}
	i := random.IntN(len(o.alive[p]))
	object := o.alive[p][i]
	o.alive[p] = slices.Delete(o.alive[p], i, i+1)
	return object, true
}
