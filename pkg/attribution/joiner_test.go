// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// record notes deliveries as "<change> <username>", or "<change> -" without author.
type record struct {
	mu   sync.Mutex
	list []string
}

func (r *record) deliver(name string) func(string, bool) {
	return func(username string, ok bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !ok {
			username = "-"
		}
		r.list = append(r.list, name+" "+username)
	}
}

// expect compares what was delivered since the last call.
func (r *record) expect(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.list, want) {
		t.Errorf("delivered %q, want %q", r.list, want)
	}
	r.list = nil
}

// advance lets the bubble's time pass.
func advance(d time.Duration) { <-time.After(d) }

// object is version rv of a ConfigMap of this name; its fact is object.by.
func object(name, rv string) Version {
	return Version{UID: types.UID("uid-" + name), ResourceVersion: rv, Resource: "configmaps", Namespace: "shop", Name: name}
}

func (v Version) by(username string) Fact {
	return Fact{UID: v.UID, ResourceVersion: v.ResourceVersion, Username: username, Verb: verbPatch,
		Resource: v.Resource, Namespace: v.Namespace, Name: v.Name, Time: time.Now().Add(-10 * time.Millisecond), Completed: time.Now()}
}

func (v Version) deletedBy(username string) Fact {
	f := v.by(username)
	f.Verb, f.Evidence, f.ResourceVersion = verbDelete, Likely, ""
	return f
}

// joinerTest runs test in a bubble with a running Joiner.
func joinerTest(t *testing.T, c JoinerConfig, test func(t *testing.T, f *Facts, j *Joiner, got *record)) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFacts(FactsConfig{})
		c.Facts = f
		j := NewJoiner(c)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { j.Run(ctx) })
		got := &record{}
		test(t, f, j, got)
		cancel()
		wg.Wait()
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.queues) == 0 && (j.pending != 0 || len(j.byUID) != 0 || len(j.waiting) != 0) {
			t.Errorf("left behind: %d pending, %d uids, %d waiting", j.pending, len(j.byUID), len(j.waiting))
		}
	})
}

func TestJoinerDeliversKnownAtOnce(t *testing.T) {
	joinerTest(t, JoinerConfig{}, func(t *testing.T, f *Facts, j *Joiner, got *record) {
		add(t, f, time.Now(), object("a", "1").by("alice"))
		j.Submit(t.Context(), object("a", "1"), got.deliver("a1"))
		got.expect(t, "a1 alice") // without waiting for Run
	})
}

func TestJoinerWaitsForLateFacts(t *testing.T) {
	joinerTest(t, JoinerConfig{}, func(t *testing.T, f *Facts, j *Joiner, got *record) {
		j.Submit(t.Context(), object("a", "1"), got.deliver("a1"))
		advance(44 * time.Second)
		synctest.Wait()
		got.expect(t)
		add(t, f, time.Now(), object("a", "1").by("alice"))
		synctest.Wait()
		got.expect(t, "a1 alice")
		advance(time.Hour)
		synctest.Wait()
		got.expect(t) // once
	})
}

// TestJoinerGrace: each change has its own grace from its own Submit (C8).
func TestJoinerGrace(t *testing.T) {
	joinerTest(t, JoinerConfig{}, func(t *testing.T, f *Facts, j *Joiner, got *record) {
		j.Submit(t.Context(), object("a", "1"), got.deliver("a1"))
		advance(10 * time.Second)
		j.Submit(t.Context(), object("a", "2"), got.deliver("a2"))
		j.Submit(t.Context(), object("b", "1"), got.deliver("b1"))
		advance(35*time.Second - 1)
		synctest.Wait()
		got.expect(t)
		advance(time.Nanosecond)
		synctest.Wait()
		got.expect(t, "a1 -")
		advance(10*time.Second - 1)
		synctest.Wait()
		got.expect(t)
		advance(time.Nanosecond)
		synctest.Wait()
		slices.Sort(got.list)
		got.expect(t, "a2 -", "b1 -")
		if why, _ := f.Health(time.Now()).Degradation([]schema.GroupResource{{Resource: "configmaps"}}); why != NoAuditEvents {
			t.Error("C12: nothing is said about facts that never come")
		}
	})
}

// TestJoinerKeepsOrderPerObject: the second change waits for the first one's fact,
// a recreated object's for its predecessor's, and nobody else's does (C8).
func TestJoinerKeepsOrderPerObject(t *testing.T) {
	joinerTest(t, JoinerConfig{}, func(t *testing.T, f *Facts, j *Joiner, got *record) {
		again := object("a", "9")
		again.UID = "another"
		gone := object("a", "5")
		gone.Deleted = true
		add(t, f, time.Now(), object("a", "2").by("bob"), again.by("carol"))
		j.Submit(t.Context(), object("a", "1"), got.deliver("a1"))
		j.Submit(t.Context(), object("a", "2"), got.deliver("a2"))
		j.Submit(t.Context(), gone, got.deliver("gone"))
		j.Submit(t.Context(), again, got.deliver("again"))
		synctest.Wait()
		got.expect(t)
		add(t, f, time.Now(), object("b", "1").by("dave"))
		j.Submit(t.Context(), object("b", "1"), got.deliver("b1"))
		got.expect(t, "b1 dave")
		add(t, f, time.Now(), object("a", "1").by("alice"))
		synctest.Wait()
		got.expect(t, "a1 alice", "a2 bob")
		advance(45 * time.Second)
		synctest.Wait()
		got.expect(t, "gone -", "again carol")
	})
}

func TestJoinerDeletions(t *testing.T) {
	joinerTest(t, JoinerConfig{}, func(t *testing.T, f *Facts, j *Joiner, got *record) {
		a, b, c := object("a", "2"), object("b", "2"), object("c", "2")
		a.Deleted, b.Deleted, c.Deleted = true, true, true
		j.Submit(t.Context(), a, got.deliver("a"))
		j.Submit(t.Context(), b, got.deliver("b"))
		j.Submit(t.Context(), c, got.deliver("c"))
		// By uid, by name, and by scope.
		add(t, f, time.Now(), a.deletedBy("alice"))
		synctest.Wait()
		got.expect(t, "a alice")
		eviction := b.deletedBy("bob")
		eviction.UID = ""
		add(t, f, time.Now(), eviction)
		advance(firstDelay + answering)
		synctest.Wait()
		got.expect(t, "b bob")
		collection := c.deletedBy("carol")
		collection.UID, collection.Name, collection.Verb = "", "", verbDeleteCollection
		collection.Time, collection.Completed = time.Now().Add(-2*time.Second), time.Now().Add(-time.Second)
		add(t, f, time.Now(), collection)
		advance(firstDelay + answering)
		synctest.Wait()
		got.expect(t, "c carol")
	})
}

// TestJoinerLetsFactsSettle: what may have been a no-op is not believed until an
// earlier claim has had its time, and then loses to it.
func TestJoinerLetsFactsSettle(t *testing.T) {
	joinerTest(t, JoinerConfig{}, func(t *testing.T, f *Facts, j *Joiner, got *record) {
		a, b := object("a", "1"), object("b", "1")
		start := time.Now()
		for _, v := range []Version{a, b} {
			j.Submit(t.Context(), v, got.deliver(v.Name))
		}
		noop := func(v Version) Fact {
			return with(v.by("bob"), func(f *Fact) {
				f.Time, f.Completed, f.Evidence = start.Add(-2*time.Millisecond), start.Add(time.Millisecond), Possible
			})
		}
		write := with(a.by("alice"), func(f *Fact) {
			f.Time, f.Completed, f.Evidence = start.Add(-20*time.Millisecond), start.Add(-3*time.Millisecond), Likely
		})
		advance(500 * time.Millisecond)
		add(t, f, time.Now(), noop(a), noop(b))
		synctest.Wait()
		got.expect(t)
		add(t, f, time.Now(), write)
		advance(firstDelay)
		synctest.Wait()
		slices.Sort(got.list)
		got.expect(t, "a alice", "b bob") // whose fact is the only one, and in time
	})
}

// TestJoinerBlocksWhenFull: Submit waits for a place and drops nothing; a change
// that needs no place does not wait.
func TestJoinerBlocksWhenFull(t *testing.T) {
	joinerTest(t, JoinerConfig{MaxPending: 2}, func(t *testing.T, f *Facts, j *Joiner, got *record) {
		j.Submit(t.Context(), object("a", "1"), got.deliver("a1"))
		j.Submit(t.Context(), object("b", "1"), got.deliver("b1"))
		submitted := make(chan string, 3)
		for _, name := range []string{"c", "d"} {
			go func() {
				j.Submit(t.Context(), object(name, "1"), got.deliver(name+"1"))
				submitted <- name
			}()
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			j.Submit(ctx, object("e", "1"), got.deliver("e1"))
			submitted <- "e"
		}()
		synctest.Wait()
		if len(submitted) != 0 {
			t.Fatal("did not block")
		}
		cancel()
		if name := <-submitted; name != "e" {
			t.Errorf("%s went on instead of the cancelled", name)
		}
		add(t, f, time.Now(), object("f", "1").by("frank"))
		j.Submit(t.Context(), object("f", "1"), got.deliver("f1"))
		got.expect(t, "f1 frank")
		advance(DefaultGrace)
		<-submitted
		<-submitted
		synctest.Wait()
		slices.Sort(got.list)
		// The time before Submit had a place counts, too.
		got.expect(t, "a1 -", "b1 -", "c1 -", "d1 -")
	})
}

// TestJoinerEnds: after its context has ended nothing is delivered and nobody hangs.
func TestJoinerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFacts(FactsConfig{})
		j := NewJoiner(JoinerConfig{Facts: f, MaxPending: 1})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); j.Run(ctx) }()
		var got record
		j.Submit(t.Context(), object("a", "1"), got.deliver("a1"))
		blocked := make(chan struct{})
		go func() {
			defer close(blocked)
			j.Submit(t.Context(), object("b", "1"), got.deliver("b1"))
		}()
		synctest.Wait()
		cancel()
		<-done
		<-blocked
		add(t, f, time.Now(), object("a", "1").by("alice"), object("c", "1").by("alice"))
		j.Submit(t.Context(), object("c", "1"), got.deliver("c1"))
		advance(time.Hour)
		synctest.Wait()
		got.expect(t)
	})
}

// TestJoinerDeliversUnlocked: while one delivery blocks, changes of other objects
// are delivered, facts are added, and the object's own order is kept.
func TestJoinerDeliversUnlocked(t *testing.T) {
	joinerTest(t, JoinerConfig{}, func(t *testing.T, f *Facts, j *Joiner, got *record) {
		add(t, f, time.Now(), object("a", "1").by("alice"))
		release := make(chan struct{})
		go j.Submit(t.Context(), object("a", "1"), func(username string, ok bool) {
			<-release
			got.deliver("a1")(username, ok)
		})
		synctest.Wait()
		add(t, f, time.Now(), object("a", "2").by("bob"), object("b", "1").by("carol"))
		j.Submit(t.Context(), object("a", "2"), got.deliver("a2"))
		j.Submit(t.Context(), object("b", "1"), got.deliver("b1"))
		synctest.Wait()
		got.expect(t, "b1 carol")
		close(release)
		synctest.Wait()
		got.expect(t, "a1 alice", "a2 bob")
	})
}

// TestJoinerUnderLoad: 2,000 changes of 20 objects, submitted and explained in
// parallel, are each delivered once, in order, to their authors.
func TestJoinerUnderLoad(t *testing.T) {
	joinerTest(t, JoinerConfig{MaxPending: 50}, func(t *testing.T, f *Facts, j *Joiner, got *record) {
		const objects, versions = 20, 100
		var wg sync.WaitGroup
		next := make([]int, objects)
		var mu sync.Mutex
		for o := range objects {
			name := fmt.Sprint("o", o)
			wg.Go(func() {
				for rv := range versions {
					j.Submit(t.Context(), object(name, fmt.Sprint(rv)), func(username string, ok bool) {
						mu.Lock()
						defer mu.Unlock()
						if next[o] != rv || !ok || username != fmt.Sprint("user", rv%3) {
							t.Errorf("%s: %d delivered to %q instead of %d", name, rv, username, next[o])
						}
						next[o]++
					})
				}
			})
			wg.Go(func() {
				for rv := range versions {
					add(t, f, time.Now(), object(name, fmt.Sprint(rv)).by(fmt.Sprint("user", rv%3)))
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		for o, n := range next {
			if n != versions {
				t.Errorf("object %d: %d of %d delivered", o, n, versions)
			}
		}
	})
}
