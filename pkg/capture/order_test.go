// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// statusLast has a controller be the last writer: whoever wrote last did not make
// the change.
func statusLast(u *unstructured.Unstructured) {
	u.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Operation: "Update", Time: new(metav1.Now())},
		{Manager: "controller", Operation: "Update", Subresource: "status", Time: new(metav1.Now())},
	})
}

// C9, C8: the deletion of an object waits for its author; the object that took its
// name in the same gap of the watch arrives after it, however it was found.
func TestReplacedInGapArrivesAfterDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")

		b.disconnect(configMaps)
		b.remove(configMaps, "x")
		again, version := b.write(configMaps, configMap("x", "2", statusLast))
		b.write(configMaps, configMap("y", "1", statusLast))
		b.expire(configMaps)
		time.Sleep(5 * time.Second)
		b.expect(t, "a resync update:y") // nothing of that name is on its way
		b.says("controller", again, version)
		b.expect(t)
		b.says("bob", uid, "deleted")
		b.expect(t, "a delete configmaps/x bob", "a update configmaps/x unresolved")
		time.Sleep(2 * grace)
		b.expect(t)
	})
}

// C8: a target without attribution waits for nobody, except for its own earlier
// changes of the object, from before attribution was switched off.
func TestAttributionSwitchedOffKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			oneTarget(b)
			b.target("n", func(s *v1alpha1.GitTargetSpec) { s.Attribution = v1alpha1.AttributionNone })
			b.rules.Add(newRule("none", "n", core("configmaps")))
		})
		uid, one := b.write(configMaps, configMap("x", "1"))
		b.expect(t, "n create configmaps/x -")
		b.targets.Modify(&v1alpha1.GitTarget{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop"},
			Spec:       v1alpha1.GitTargetSpec{Attribution: v1alpha1.AttributionNone},
		})
		synctest.Wait()
		_, two := b.write(configMaps, configMap("x", "2"))
		b.expect(t, "n update configmaps/x -") // its own first one has arrived
		b.write(configMaps, configMap("y", "1"))
		b.expect(t, "a create configmaps/y -", "n create configmaps/y -")
		b.says("bob", uid, two)
		b.expect(t)
		b.says("alice", uid, one)
		b.expect(t, "a create configmaps/x alice", "a update configmaps/x -")
		b.write(configMaps, configMap("x", "3"))
		b.expect(t, "a update configmaps/x -", "n update configmaps/x -")
	})
}

// 5.5: a save of one target does not wait for authors that only another one needs.
func TestCatchUpIgnoresOtherTargetsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			oneTarget(b)
			b.target("n", func(s *v1alpha1.GitTargetSpec) { s.Attribution = v1alpha1.AttributionNone })
			b.rules.Add(newRule("none", "n", core("configmaps")))
		})
		b.write(configMaps, configMap("x", "1"))
		b.expect(t, "n create configmaps/x -")
		start := time.Now()
		if err := b.capture.CatchUp(t.Context(), types.NamespacedName{Namespace: "shop", Name: "n"}); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := b.capture.CatchUp(t.Context(), types.NamespacedName{Namespace: "shop", Name: "a"}); err != nil || time.Since(start) != grace {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// C7: a version was seen when the watch brought it, not when its turn came; a
// version from a list was not seen being written.
func TestSeenIsArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			oneTarget(b)
			b.target("n", func(s *v1alpha1.GitTargetSpec) { s.Attribution = v1alpha1.AttributionNone })
			b.rules.Add(newRule("none", "n", core("configmaps")))
			b.write(configMaps, configMap("listed", "1"))
			time.Sleep(time.Hour)
		})
		if len(b.asked) != 1 || b.asked[0].Name != "listed" || !b.asked[0].Seen.IsZero() {
			t.Errorf("asked about %+v", b.asked)
		}
		if len(b.submitted) != 0 {
			t.Errorf("submitted %+v", b.submitted)
		}
		b.room = make(chan struct{})
		b.write(configMaps, configMap("blocks", "1"))
		time.Sleep(5 * time.Second)
		written := time.Now()
		b.write(configMaps, configMap("waits", "1"))
		time.Sleep(5 * time.Second)
		removed := time.Now()
		b.remove(configMaps, "waits")
		time.Sleep(5 * time.Second)
		close(b.room)
		synctest.Wait()
		if len(b.submitted) != 3 {
			t.Fatalf("submitted %+v", b.submitted)
		}
		if got := b.submitted[1]; got.Name != "waits" || !got.Seen.Equal(written) {
			t.Errorf("written at %v, submitted %+v", written, got)
		}
		if got := b.submitted[2]; got.Name != "waits" || !got.Deleted || !got.Seen.Equal(removed) {
			t.Errorf("removed at %v, submitted %+v", removed, got)
		}
	})
}
