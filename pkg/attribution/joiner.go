// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Defaults of JoinerConfig.
const (
	// DefaultGrace is half as long again as kube-apiserver's default batch wait (C8).
	DefaultGrace      = 45 * time.Second
	DefaultMaxPending = 50_000
)

// JoinerConfig configures a Joiner. Zero fields take the defaults.
type JoinerConfig struct {
	Facts *Facts
	// Grace is how long a change waits for its fact, from its Submit (C8).
	Grace time.Duration
	// MaxPending bounds the changes that wait; beyond it Submit blocks.
	MaxPending int
	// Metrics may be nil.
	Metrics *Metrics
}

// Joiner gives each change its author (C8). Changes of one object are delivered in
// the order of their Submits; nobody waits for another object's fact. It is safe for
// concurrent use, but the order of Submits that run at the same time is theirs.
type Joiner struct {
	facts   *Facts
	grace   time.Duration
	limit   int
	metrics *Metrics

	// mu protects what follows. It is not held while a change is delivered.
	mu     sync.Mutex
	queues map[objectKey]*queue
	// byUID are the queues whose first change is of that uid. One object may be served
	// by two groups.
	byUID map[types.UID][]*queue
	// waiting are the queues by the time to look at their first change again.
	waiting queueHeap
	// due are the queues to look at now.
	due     []*queue
	pending int
	stopped bool
	// space is closed when a place becomes free or the Joiner stops.
	space chan struct{}
	// wake has one slot, for Run to look again.
	wake chan struct{}
	// told are the causes that were logged.
	told map[Cause]bool
}

// queue holds the changes of one object, oldest first.
type queue struct {
	object  objectKey
	changes []change
	// busy says that somebody delivers the object's changes now, without mu.
	busy bool
	// isDue says that the queue is in Joiner.due.
	isDue bool
	// at and index belong to queueHeap; index is -1 when the queue is not in it.
	at    time.Time
	index int
}

type change struct {
	version  Version
	deliver  func(username string, ok bool)
	submit   time.Time
	deadline time.Time
}

// NewJoiner makes a Joiner on the facts. Changes that have to wait are delivered by
// Run.
func NewJoiner(c JoinerConfig) *Joiner {
	j := &Joiner{
		facts:   c.Facts,
		grace:   cmp.Or(c.Grace, DefaultGrace),
		limit:   cmp.Or(c.MaxPending, DefaultMaxPending),
		metrics: c.Metrics,
		queues:  map[objectKey]*queue{},
		byUID:   map[types.UID][]*queue{},
		space:   make(chan struct{}),
		wake:    make(chan struct{}, 1),
		told:    map[Cause]bool{},
	}
	c.Facts.subscribe(j.arrived)
	return j
}

// Submit has deliver called once with the author of v, or with ok false when none is
// found within the grace. A change whose author is known already, and that has none
// of its object before it, is delivered before Submit returns. When too many changes
// wait, Submit blocks until there is a place, ctx ends or Run does; in the latter
// cases, and after them, deliver is not called.
//
// deliver is called without locks held, and may block: then so do the changes after
// it. It must not call Submit.
func (j *Joiner) Submit(ctx context.Context, v Version, deliver func(username string, ok bool)) {
	now := time.Now()
	if v.Seen.IsZero() {
		v.Seen = now
	}
	c := change{version: v, deliver: deliver, submit: now, deadline: now.Add(j.grace)}
	key := v.object()
	j.mu.Lock()
	for {
		if j.stopped || ctx.Err() != nil {
			j.mu.Unlock()
			return
		}
		q := j.queues[key]
		if q == nil {
			if found := j.facts.find(&c.version, now, false); found.found {
				q = &queue{object: key, index: -1, busy: true}
				j.queues[key] = q
				j.mu.Unlock()
				j.metrics.decided(found, 0)
				j.facts.noteProven(found.received, c.version.Seen)
				deliver(found.username, true)
				j.mu.Lock()
				j.release(q)
				j.mu.Unlock()
				return
			}
		}
		if j.pending < j.limit {
			break
		}
		space := j.space
		j.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
		}
		j.mu.Lock()
	}
	defer j.mu.Unlock()
	q := j.queues[key]
	if q == nil {
		q = &queue{object: key, index: -1}
		j.queues[key] = q
	}
	q.changes = append(q.changes, c)
	j.pending++
	j.metrics.waiting(j.pending)
	if len(q.changes) == 1 {
		j.watch(q)
		if !q.busy {
			j.look(q)
		}
	}
}

// Run delivers what waits until ctx ends; then nothing is delivered any more, here
// or by Submit. It must be called once.
func (j *Joiner) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer j.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		case <-timer.C:
		}
		next, ok := j.step(ctx)
		if ok {
			timer.Reset(time.Until(next))
		}
	}
}

// stop ends deliveries and lets blocked Submits go.
func (j *Joiner) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	close(j.space)
	j.space = make(chan struct{})
}

// step looks at every queue whose time has come, and returns when the next one's
// does.
func (j *Joiner) step(ctx context.Context) (next time.Time, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		now := time.Now()
		for len(j.waiting) > 0 && !j.waiting[0].at.After(now) {
			j.look(j.waiting[0])
		}
		if len(j.due) == 0 {
			break
		}
		due := j.due
		j.due = nil
		for _, q := range due {
			q.isDue = false
			j.drain(ctx, q)
		}
		if ctx.Err() != nil {
			return time.Time{}, false
		}
	}
	if len(j.waiting) == 0 {
		return time.Time{}, false
	}
	return j.waiting[0].at, true
}

// drain delivers the queue's changes up to the first that has to wait. Caller must
// hold mu, which is released meanwhile.
func (j *Joiner) drain(ctx context.Context, q *queue) {
	if q.busy {
		return // its owner looks again
	}
	q.busy = true
	for len(q.changes) > 0 && ctx.Err() == nil {
		c := q.changes[0]
		now := time.Now()
		v := j.facts.find(&c.version, now, !now.Before(c.deadline))
		if !v.found && now.Before(c.deadline) {
			break
		}
		j.unwatch(q)
		q.changes[0] = change{}
		q.changes = q.changes[1:]
		j.watch(q)
		j.pending--
		j.metrics.waiting(j.pending)
		if j.pending == j.limit-1 { // nobody blocks while there is space
			close(j.space)
			j.space = make(chan struct{})
		}
		first := !v.found && !j.told[v.cause]
		if first {
			j.told[v.cause] = true
		}
		j.mu.Unlock()
		j.metrics.decided(v, now.Sub(c.submit))
		j.facts.noteProven(v.received, c.version.Seen)
		if !v.found {
			j.unresolved(ctx, &c, v, now, first)
		}
		c.deliver(v.username, v.found)
		j.mu.Lock()
	}
	q.busy = false
	j.settle(q)
}

// unresolved counts a change without author, and logs the first of each cause.
func (j *Joiner) unresolved(ctx context.Context, c *change, v verdict, now time.Time, first bool) {
	if v.cause == CauseNoFact {
		j.facts.noteInVain(now, schema.GroupResource{Group: c.version.Group, Resource: c.version.Resource})
	}
	logger := klog.FromContext(ctx)
	if !first {
		logger = logger.V(4)
	}
	logger.Info("No author found for a change", "cause", v.cause, "group", c.version.Group, "resource", c.version.Resource,
		"object", klog.KRef(c.version.Namespace, c.version.Name), "resourceVersion", c.version.ResourceVersion, "waited", now.Sub(c.submit))
}

// release gives up a queue that Submit delivered for. Caller must hold mu.
func (j *Joiner) release(q *queue) {
	q.busy = false
	j.settle(q)
	if len(q.changes) > 0 {
		j.look(q)
	}
}

// settle puts the queue where it belongs after its first change was looked at:
// nowhere when it is empty, else into the heap. Caller must hold mu.
func (j *Joiner) settle(q *queue) {
	if len(q.changes) == 0 {
		j.waiting.remove(q)
		if j.queues[q.object] == q { // it may have come back as another one
			delete(j.queues, q.object)
		}
		return
	}
	c := &q.changes[0]
	at := c.deadline
	now := time.Now()
	if v := j.facts.find(&c.version, now, false); v.found {
		at = now
	} else if !v.settles.IsZero() && v.settles.Before(at) {
		at = v.settles
	}
	j.waiting.set(q, at)
}

// watch and unwatch keep byUID, which knows the first change of each queue. Caller
// must hold mu.
func (j *Joiner) watch(q *queue) {
	if len(q.changes) > 0 {
		uid := q.changes[0].version.UID
		j.byUID[uid] = append(j.byUID[uid], q)
	}
}

func (j *Joiner) unwatch(q *queue) {
	uid := q.changes[0].version.UID
	list := j.byUID[uid]
	for i := range list {
		if list[i] == q {
			list[i] = list[len(list)-1]
			list = list[:len(list)-1]
			break
		}
	}
	if len(list) == 0 {
		delete(j.byUID, uid)
		return
	}
	j.byUID[uid] = list
}

// look has Run look at the queue. Caller must hold mu.
func (j *Joiner) look(q *queue) {
	j.waiting.remove(q)
	if !q.isDue {
		q.isDue = true
		j.due = append(j.due, q)
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// arrived has Run look at the queues that the facts are about.
func (j *Joiner) arrived(facts []Fact) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pending == 0 {
		return
	}
	for i := range facts {
		f := &facts[i]
		switch {
		case f.UID != "":
			for _, q := range j.byUID[f.UID] {
				j.look(q)
			}
		case f.Verb == verbDelete:
			if q := j.queues[f.object()]; q != nil && len(q.changes) > 0 {
				j.look(q)
			}
		case f.Verb == verbDeleteCollection:
			for _, q := range j.queues {
				if len(q.changes) > 0 && q.changes[0].version.Deleted {
					j.look(q)
				}
			}
		}
	}
}

// queueHeap orders queues by time. A queue is in it at most once.
type queueHeap []*queue

var _ heap.Interface = (*queueHeap)(nil)

func (h queueHeap) Len() int           { return len(h) }
func (h queueHeap) Less(a, b int) bool { return h[a].at.Before(h[b].at) }
func (h queueHeap) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].index, h[b].index = a, b
}

// Push is for package heap.
func (h *queueHeap) Push(x any) {
	q, _ := x.(*queue)
	q.index = len(*h)
	*h = append(*h, q)
}

// Pop is for package heap.
func (h *queueHeap) Pop() any {
	last := len(*h) - 1
	q := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	q.index = -1
	return q
}

func (h *queueHeap) set(q *queue, at time.Time) {
	q.at = at
	if q.index < 0 {
		heap.Push(h, q)
		return
	}
	heap.Fix(h, q.index)
}

func (h *queueHeap) remove(q *queue) {
	if q.index >= 0 {
		heap.Remove(h, q.index)
	}
}
