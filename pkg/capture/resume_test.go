// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

// set changes how the cluster answers.
func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// dropped deletes a ConfigMap as a user.
func (b *bench) dropped(user, name string) {
	b.says(user, b.remove(configMaps, name), "deleted")
}

// C9: a resync that was not taken is found again, by this process and by the next.
func TestRefusedResyncIsNoComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{cluster: newCluster(), audit: newAudit(grace), branches: &branches{ending: true}, discovery: newDiscovery()}
		kept := newBook()
		b.write(configMaps, configMap("old", "1"))
		time.Sleep(2 * grace)
		b.start(t, kept, oneTarget)
		time.Sleep(10 * lastRetry) // it was tried again
		b.expect(t)
		if place, _ := kept.Place(shopConfigMaps); len(place.Compared) > 0 {
			t.Errorf("said to be compared: %q", place.Compared)
		}
		b.kill()
		b.branches = &branches{}
		b.start(t, kept, oneTarget)
		b.expect(t, "a resync update:old")
	})
}

// C9: what a comparison found and what waits for its author comes by no watch again.
// Until it has arrived, the next process has to compare.
func TestFoundByComparisonIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{cluster: newCluster(), audit: newAudit(grace), branches: &branches{}, discovery: newDiscovery()}
		kept := newBook()
		uid, version := b.write(configMaps, configMap("young", "1"))
		b.start(t, kept, oneTarget)
		time.Sleep(2 * placeInterval)
		b.expect(t)
		if place, _ := kept.Place(shopConfigMaps); place.ResourceVersion == "" || len(place.Compared) > 0 {
			t.Errorf("the place is %+v, want one that is not compared", place)
		}
		b.kill()
		b.branches.end()
		b.branches, b.audit = &branches{}, newAudit(grace)
		b.says("alice", uid, version)
		b.start(t, kept, oneTarget)
		b.expect(t, "a update configmaps/young alice")
		time.Sleep(2 * placeInterval)
		if place, _ := kept.Place(shopConfigMaps); len(place.Compared) != 1 {
			t.Errorf("the place is %+v, want one that is compared", place)
		}
	})
}

// W18: that a discarded change was compared is not kept before the places say that what
// was found is under way.
func TestW18FoundAfterADiscardIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		b.audit.mu.Lock()
		clear(b.audit.facts) // so that what is found waits
		b.audit.mu.Unlock()
		b.capture.Recompare(targetA)
		kept.discarded(targetA)
		b.expect(t)
		b.kill() // before the places were due
		b.branches.end()
		b.branches, b.audit = &branches{}, newAudit(grace)
		b.start(t, kept, oneTarget)
		time.Sleep(grace)
		b.expect(t, "a update configmaps/x unresolved")
	})
}

// C9: a GitTarget that takes another's place is not said to be compared while its
// worker has not come to it.
func TestReplacedTargetIsNotSaidToBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{cluster: newCluster(), audit: newAudit(grace), branches: &branches{room: make(chan struct{}, 1)}, discovery: newDiscovery()}
		kept := newBook()
		attributedToNobody := func(uid types.UID) *v1alpha1.GitTarget {
			g := &v1alpha1.GitTarget{Spec: v1alpha1.GitTargetSpec{Attribution: v1alpha1.AttributionNone}}
			g.Name, g.Namespace = "a", "shop"
			g.SetUID("uid-of-" + uid)
			return g
		}
		b.start(t, kept, func(b *bench) {
			b.targets.Add(attributedToNobody("first"))
			b.rules.Add(newRule("r", "a", core("configmaps")))
		})
		time.Sleep(2 * placeInterval)
		if place, _ := kept.Place(shopConfigMaps); len(place.Compared) != 1 || !strings.Contains(place.Compared[0], "uid-of-first") {
			t.Fatalf("the place is %+v", place)
		}
		b.write(configMaps, configMap("x", "1"))
		synctest.Wait()
		b.write(configMaps, configMap("y", "1")) // each takes one room, and there is none
		b.targets.Modify(attributedToNobody("second"))
		time.Sleep(10 * placeInterval)
		place, _ := kept.Place(shopConfigMaps)
		for _, claim := range place.Compared {
			if strings.Contains(claim, "uid-of-second") {
				t.Errorf("said to be compared: %s", claim)
			}
		}
		close(b.room)
		time.Sleep(2 * placeInterval)
		if place, _ := kept.Place(shopConfigMaps); len(place.Compared) != 1 || !strings.Contains(place.Compared[0], "uid-of-second") {
			t.Errorf("the place is %+v", place)
		}
	})
}

// C9: a place that the cluster has not come to, as after a restore of etcd, or of
// another version of the API is none: all is compared as it is.
func TestPlaceThatCannotBeHad(t *testing.T) {
	for name, spoil := range map[string]func(*Place){
		"of the future":          func(p *Place) { p.ResourceVersion = "1000000" },
		"of another API version": func(p *Place) { p.Version = "v0" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, kept := newDurable(t)
				b.kill()
				b.wrote("bob", "x", "2")
				b.wrote("carol", "x", "3")
				place, _ := kept.Place(shopConfigMaps)
				spoil(&place)
				kept.Save(shopConfigMaps, place)
				b.start(t, kept, oneTarget)
				// Not carol, who wrote last: how much of it is bob's nobody knows.
				b.expect(t, "a update configmaps/x unresolved")
				time.Sleep(2 * placeInterval)
				if place, _ := kept.Place(shopConfigMaps); place.ResourceVersion != "103" || place.Version != "v1" || len(place.Compared) != 1 {
					t.Errorf("the place is %+v", place)
				}
			})
		})
	}
}

// A cluster that does not answer has not lost the past.
func TestResumeWaitsForTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		b.kill()
		b.wrote("bob", "x", "2")
		b.wrote("carol", "x", "3")
		b.set(func() { b.down = true })
		b.start(t, kept, oneTarget)
		time.Sleep(time.Minute)
		b.expect(t)
		if place, _ := kept.Place(shopConfigMaps); place.ResourceVersion != "101" {
			t.Errorf("the place was changed to %+v", place)
		}
		b.set(func() { b.down = false })
		time.Sleep(time.Minute)
		b.expect(t, "a update configmaps/x bob", "a update configmaps/x carol")
	})
}

// counted counts the places that are saved.
type counted struct {
	*book
	saves chan Place
}

func (c counted) Save(of ScopedResource, place Place) {
	c.book.Save(of, place)
	if of == shopConfigMaps {
		c.saves <- place
	}
}

// Places are saved of sources that were listed, when they changed, and at most once in
// an interval but for comparisons.
func TestPlacesAreSavedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{cluster: newCluster(), audit: newAudit(grace), branches: &branches{files: map[window.Object]string{}}, discovery: newDiscovery()}
		kept := counted{newBook(), make(chan Place, 1000)}
		b.forbidden["configmaps"] = true
		b.start(t, kept, oneTarget)
		time.Sleep(time.Minute)
		if n := len(kept.saves); n != 0 {
			t.Errorf("%d saves before the first list", n)
		}
		b.set(func() { b.forbidden["configmaps"] = false })
		time.Sleep(10 * time.Minute)
		first := len(kept.saves)
		if first == 0 {
			t.Error("nothing was saved")
		}
		time.Sleep(time.Hour)
		if n := len(kept.saves); n != first {
			t.Errorf("%d saves of the same", n-first)
		}
		for i := range 50 {
			b.wrote("alice", "x", strings.Repeat("v", i))
			time.Sleep(placeInterval / 10)
		}
		time.Sleep(2 * placeInterval)
		if n := len(kept.saves) - first; n < 4 || n > 7 {
			t.Errorf("%d saves in five intervals", n)
		}
	})
}

// C9: what was made after the place and taken, and was gone when a watch from there
// could not go on, is known to the target alone: the list that comes then asks for a
// comparison.
func TestGoneBeforeARelistBehindAResumeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, kept := newDurable(t)
		b.wrote("alice", "y", "1")
		b.expect(t, "a create configmaps/y alice")
		b.kill() // the place is still before y
		b.dropped("bob", "y")
		b.set(func() { b.silent[configMaps] = true })
		b.branches.orphans = []window.Object{{Resource: "configmaps", Namespace: "shop", Name: "y"}}
		b.start(t, kept, func(b *bench) {
			b.target("a", func(s *v1alpha1.GitTargetSpec) { s.Prune = true })
			b.rules.Add(newRule("r", "a", core("configmaps", "services")))
		})
		synctest.Wait()
		b.expire(configMaps)
		time.Sleep(2 * grace)
		b.expect(t, "a resync delete:y")
	})
}
