// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// book stands for the journal: what it holds outlives the process.
type book struct {
	mu         sync.Mutex
	places     map[ScopedResource]Place
	uncompared map[types.NamespacedName]bool
	forgotten  []ScopedResource
}

var _ Places = (*book)(nil)

func newBook() *book {
	return &book{places: map[ScopedResource]Place{}, uncompared: map[types.NamespacedName]bool{}}
}

func (k *book) Place(of ScopedResource) (Place, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	place, ok := k.places[of]
	return place, ok
}

func (k *book) Sources() []ScopedResource {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.places))
}

func (k *book) Save(of ScopedResource, place Place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.places[of] = place
}

func (k *book) Forget(of ScopedResource) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.places, of)
	k.forgotten = append(k.forgotten, of)
}

func (k *book) Uncompared() []types.NamespacedName {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.uncompared))
}

func (k *book) Compared(target types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.uncompared, target)
}

// discarded is what the branch workers write down, after they told capture.
func (k *book) discarded(target types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uncompared[target] = true
}

var shopConfigMaps = ScopedResource{Resource: "configmaps", Namespace: "shop"}

// wrote stores an object as a user.
func (b *bench) wrote(user, name, value string) (version string) {
	uid, version := b.write(configMaps, configMap(name, value))
	b.says(user, uid, version)
	return version
}

// newDurable is a bench with a book, whose target has x, and whose place is known.
func newDurable(t *testing.T) (*bench, *book) {
	b := &bench{cluster: newCluster(), audit: newAudit(grace), branches: &branches{}, discovery: newDiscovery()}
	kept := newBook()
	b.start(t, kept, oneTarget)
	b.wrote("alice", "x", "1")
	b.expect(t, "a create configmaps/x alice")
	time.Sleep(2 * placeInterval)
	return b, kept
}

// D1: what was written while nobody watched is seen version by version, each with its
// own author; nothing that was compared is compared again.
func TestD1EveryVersionOfADowntimeIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		b.wrote("alice", "z", "1")
		b.expect(t, "a create configmaps/z alice")
		time.Sleep(2 * placeInterval)
		b.kill()
		b.wrote("alice", "x", "2")
		b.wrote("bob", "x", "3")
		b.wrote("bob", "y", "1")
		gone := b.remove(configMaps, "z")
		b.audit.facts[string(gone)+"/deleted"] = "carol"
		b.wrote("dave", "z", "2")
		b.start(t, kept, oneTarget)
		b.expect(t, "a update configmaps/x alice", "a update configmaps/x bob", "a create configmaps/y bob",
			"a delete configmaps/z carol", "a create configmaps/z dave")
		if want := []string{"configmaps at 102", "services at 100"}; !slices.Equal(slices.Sorted(slices.Values(b.exact)), want) {
			t.Errorf("lists of the past are %q, want %q", b.exact, want)
		}
		time.Sleep(time.Hour)
		b.expect(t)
	})
}

// What waited for its author comes again after a crash, and with it what was handed on
// after it; what the place has passed does not.
func TestD1WhatWaitedComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		uid, version := b.write(configMaps, configMap("x", "2"))
		b.wrote("bob", "y", "1")
		b.expect(t, "a create configmaps/y bob")
		time.Sleep(2 * placeInterval)
		if place := kept.places[shopConfigMaps]; place.ResourceVersion != "101" || len(place.Compared) != 1 {
			t.Errorf("the place is %+v, want one before what waits", place)
		}
		b.kill()
		known := b.audit.facts
		b.audit = newAudit(grace)
		b.audit.facts = known
		b.audit.facts[string(uid)+"/"+version] = "alice"
		b.start(t, kept, oneTarget)
		b.expect(t, "a update configmaps/x alice", "a create configmaps/y bob")
	})
}

// What the sink does not take comes again, and only that.
func TestWhatIsNotTakenComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		b.branches.end()
		b.wrote("bob", "x", "2")
		b.wrote("bob", "y", "1")
		time.Sleep(2 * placeInterval)
		b.expect(t)
		b.kill()
		b.branches = &branches{}
		b.start(t, kept, oneTarget)
		b.expect(t, "a update configmaps/x bob", "a create configmaps/y bob")
	})
}

// A past that is not known any more is made up for by a comparison with Git (C9), of
// all claims.
func TestC9CompactedPastIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		b.kill()
		b.wrote("bob", "x", "2")
		time.Sleep(2 * grace) // so that nobody may be named but by a fact
		b.write(configMaps, configMap("y", "1"))
		time.Sleep(2 * grace)
		b.expire(configMaps)
		b.start(t, kept, oneTarget)
		b.expect(t, "a update configmaps/x bob", "a resync update:y")
		if !slices.Contains(kept.forgotten, shopConfigMaps) {
			t.Error("the place was not given up: versions might be taken as known")
		}
		time.Sleep(2 * placeInterval)
		if place := kept.places[shopConfigMaps]; place.ResourceVersion != "104" || len(place.Compared) != 1 {
			t.Errorf("the place is %+v", place)
		}
	})
}

// A watch that ends right after the start does not turn the source back to where it
// began.
func TestRelistAfterAResumeIsOfThePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		b.kill()
		b.wrote("bob", "x", "2")
		b.start(t, kept, oneTarget)
		b.expect(t, "a update configmaps/x bob")
		b.expire(configMaps)
		time.Sleep(time.Minute)
		b.expect(t)
		if len(b.exact) != 2 {
			t.Errorf("lists of the past are %q, want one of each source", b.exact)
		}
	})
}

// A claim is the same after a restart if its target and its selectors are.
func TestChangedClaimsAreCompared(t *testing.T) {
	tests := map[string]struct {
		prepare func(*bench)
		want    []string
		targets int
	}{
		"the same":       {oneTarget, nil, 1},
		"another target": {func(b *bench) { b.target("b"); b.rules.Add(newRule("r", "b", core("configmaps"))) }, []string{"b update configmaps/x alice"}, 1},
		"another of its name": {func(b *bench) {
			b.targets.Add(&v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", UID: "another"}})
			b.rules.Add(newRule("r", "a", core("configmaps")))
		}, []string{"a update configmaps/x alice"}, 1},
		"other selectors": {func(b *bench) {
			entry := core("configmaps")
			entry.Names = []string{"x"}
			b.target("a")
			b.rules.Add(newRule("r", "a", entry))
		}, []string{"a update configmaps/x alice"}, 1},
		"one more": {func(b *bench) {
			oneTarget(b)
			b.target("b")
			b.rules.Add(newRule("s", "b", core("configmaps")))
		}, []string{"b update configmaps/x alice"}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, kept := newDurable(t)
				b.kill()
				b.start(t, kept, test.prepare)
				b.expect(t, test.want...)
				// The next event is known for what it is.
				b.remove(configMaps, "x")
				time.Sleep(2 * grace)
				if got := b.take(); len(got) != test.targets {
					t.Errorf("the deletion was handed on as %q", got)
				}
			})
		})
	}
}

// W18: changes that came to nothing are compared by the next process, as soon as the
// target is not suspended, and then not again.
func TestW18DiscardedChangesAreComparedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		b.targets.Modify(&v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop"}, Spec: v1alpha1.GitTargetSpec{Suspend: true}})
		synctest.Wait()
		b.capture.Recompare(targetA)
		kept.discarded(targetA)
		time.Sleep(2 * placeInterval)
		b.kill()
		b.start(t, kept, func(b *bench) {
			b.target("a", func(s *v1alpha1.GitTargetSpec) { s.Suspend = true })
			b.rules.Add(newRule("r", "a", core("configmaps")))
		})
		b.expect(t)
		b.targets.Modify(&v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop"}})
		b.expect(t, "a update configmaps/x alice")
		if len(kept.Uncompared()) > 0 {
			t.Error("the target counts as not compared")
		}
		time.Sleep(2 * placeInterval)
		b.kill()
		b.start(t, kept, oneTarget)
		b.expect(t)
	})
}

// What nobody claims any more is forgotten, in this process and of the one before.
func TestUnclaimedPlacesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		b.kill()
		kept.Save(ScopedResource{Group: "apps", Resource: "deployments", Namespace: "shop"}, Place{ResourceVersion: "1", Version: "v1"})
		b.start(t, kept, oneTarget)
		if _, ok := kept.Place(ScopedResource{Group: "apps", Resource: "deployments", Namespace: "shop"}); ok {
			t.Error("a place that nobody claims is kept")
		}
		b.rules.Delete(newRule("r", "a", core("configmaps", "services")))
		time.Sleep(2 * placeInterval)
		if _, ok := kept.Place(shopConfigMaps); ok {
			t.Error("a place that nobody claims any more is kept")
		}
	})
}

// A wrong author is worse than none: where a list shows the last of several writes,
// nobody is named who did not make them all.
func TestWritesOfSeveralAreNobodys(t *testing.T) {
	tests := map[string]struct {
		authors []string
		want    string
	}{
		"one":     {[]string{"bob", "bob"}, "a update configmaps/x bob"},
		"two":     {[]string{"carol", "bob"}, "a update configmaps/x unresolved"},
		"another": {[]string{"bob", "carol", "bob"}, "a update configmaps/x unresolved"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, kept := newDurable(t)
				b.disconnect(configMaps)
				for i, author := range test.authors {
					b.wrote(author, "x", string(rune('2'+i)))
				}
				b.expire(configMaps)
				time.Sleep(10 * time.Second)
				b.expect(t, test.want)
				b.kill()
				// The same by a process that knows nothing of the past.
				b.cluster.mu.Lock()
				b.held["configmaps"] = false
				b.cluster.mu.Unlock()
				kept.Forget(shopConfigMaps)
				b.start(t, kept, oneTarget)
				b.expect(t, "a update configmaps/x unresolved") // alice's is among them
			})
		})
	}
}

// What is taken of a source is never on disk without its place, or the next process
// would compare what it has.
func TestPlaceComesBeforeTheFirstChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{cluster: newCluster(), audit: newAudit(grace), branches: &branches{}, discovery: newDiscovery()}
		b.wrote("alice", "x", "1")
		b.room = make(chan struct{})
		kept := newBook()
		b.start(t, kept, oneTarget)
		if place, ok := kept.Place(shopConfigMaps); !ok || place.ResourceVersion != "101" || len(place.Compared) > 0 {
			t.Errorf("the place is %+v (%v) when the first change is handed on", place, ok)
		}
		close(b.room)
		b.expect(t, "a update configmaps/x alice")
	})
}
