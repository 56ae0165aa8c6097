// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// oneTarget has target "a" with a rule for ConfigMaps and Services.
func oneTarget(b *bench) {
	b.target("a")
	b.rules.Add(newRule("r", "a", core("configmaps", "services")))
}

func TestChangesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		uid, one := b.write(configMaps, configMap("x", "1"))
		_, two := b.write(configMaps, configMap("x", "2"))
		other, three := b.write(configMaps, configMap("y", "1"))
		b.expect(t)
		// C7: facts in any order; C8: y waits for nobody, x keeps its order.
		b.says("bob", uid, two)
		b.expect(t)
		b.says("carol", other, three)
		b.expect(t, "a create configmaps/y carol")
		b.says("alice", uid, one)
		b.expect(t, "a create configmaps/x alice", "a update configmaps/x bob")
		// C8: without a fact the change is unresolved after the grace, not lost.
		b.write(configMaps, configMap("y", "2"))
		time.Sleep(grace - time.Second)
		b.expect(t)
		time.Sleep(time.Second)
		b.expect(t, "a update configmaps/y unresolved")
	})
}

// C3: only a change of the rendering is a change.
func TestStatusIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		deployment := func(replicas int64) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "s", "namespace": "shop"},
				"spec": map[string]any{"type": "ClusterIP"}, "status": map[string]any{"seen": replicas},
			}}
		}
		uid, version := b.write(services, deployment(1))
		b.says("alice", uid, version)
		b.expect(t, "a create services/s alice")
		_, version = b.write(services, deployment(2))
		b.says("controller", uid, version)
		time.Sleep(2 * grace)
		b.expect(t)
	})
}

// C2: what a controller owns is not captured, and no longer is once it is adopted.
func TestOwnedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		owned := func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "K", Name: "o", UID: "u", Controller: new(true)}})
		}
		b.write(configMaps, configMap("x", "1", owned))
		b.write(configMaps, configMap("kube-root-ca.crt", "1"))
		time.Sleep(2 * grace)
		b.expect(t)
		uid, version := b.write(configMaps, configMap("y", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/y alice")
		uid, version = b.write(configMaps, configMap("y", "1", owned))
		b.says("controller", uid, version)
		b.expect(t, "a delete configmaps/y controller")
	})
}

// C4: a deletion is a change of the one who asked for it, once.
func TestDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")
		terminating := func(u *unstructured.Unstructured) {
			u.SetDeletionTimestamp(new(metav1.Now()))
			u.SetFinalizers([]string{"example.org/f"})
		}
		b.write(configMaps, configMap("x", "1", terminating))
		b.says("bob", uid, "deleted")
		b.expect(t, "a delete configmaps/x bob")
		b.write(configMaps, configMap("x", "1", terminating, labelled("cleared", "yes")))
		b.remove(configMaps, "x")
		time.Sleep(2 * grace)
		b.expect(t)

		// At once, and created again under the same name: another object.
		uid, version = b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.remove(configMaps, "x")
		b.says("bob", uid, "deleted")
		again, version := b.write(configMaps, configMap("x", "1"))
		b.says("carol", again, version)
		b.expect(t, "a create configmaps/x alice", "a delete configmaps/x bob", "a create configmaps/x carol")
	})
}

// 4.3: names and labels select; an object that leaves the selector is removed.
func TestSelectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			b.target("a")
			b.target("b")
			b.target("n", func(s *v1alpha1.GitTargetSpec) { s.Attribution = v1alpha1.AttributionNone })
			labels := core("configmaps")
			labels.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
			names := core("configmaps")
			names.Names = []string{"y"}
			b.rules.Add(newRule("labels", "a", labels))
			b.rules.Add(newRule("names", "b", names))
			b.rules.Add(newRule("none", "n", core("configmaps")))
		})
		// C1: one reflector for three targets.
		if b.watches["configmaps"] != 1 {
			t.Errorf("%d watches for one resource", b.watches["configmaps"])
		}
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "n create configmaps/x -")
		_, version = b.write(configMaps, configMap("x", "1", labelled("app", "web")))
		b.says("alice", uid, version)
		b.expect(t, "n update configmaps/x -", "a create configmaps/x alice")
		_, version = b.write(configMaps, configMap("x", "1", labelled("app", "db")))
		b.says("bob", uid, version)
		b.expect(t, "n update configmaps/x -", "a delete configmaps/x bob")
		uid, version = b.write(configMaps, configMap("y", "1", labelled("app", "web")))
		b.says("carol", uid, version)
		b.expect(t, "n create configmaps/y -", "a create configmaps/y carol", "b create configmaps/y carol")
	})
}

// A full sink makes the watch wait; nothing is dropped, and other sources go on.
func TestSlowSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			b.target("n", func(s *v1alpha1.GitTargetSpec) { s.Attribution = v1alpha1.AttributionNone })
			b.rules.Add(newRule("r", "n", core("configmaps")))
		})
		b.room = make(chan struct{})
		const writes = queueLength + 64 // the fake watch panics when 100 wait in it
		for i := range writes {
			b.write(configMaps, configMap("x", strconv.Itoa(i)))
			synctest.Wait()
		}
		b.expect(t)
		close(b.room)
		synctest.Wait()
		if got := b.take(); len(got) != writes {
			t.Errorf("%d of %d changes arrived", len(got), writes)
		}
	})
}

func old(u *unstructured.Unstructured) {
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", Time: new(metav1.NewTime(time.Now().Add(-time.Hour)))}})
}

// 5.5: a GitTarget that is being deleted gets what was done before, until it is gone.
func TestTargetBeingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		uid, version := b.write(configMaps, configMap("x", "1"))
		synctest.Wait()
		deleted := &v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "shop", DeletionTimestamp: &metav1.Time{Time: time.Now()}, Finalizers: []string{v1alpha1.FlushFinalizer},
		}}
		b.targets.Modify(deleted)
		synctest.Wait()
		caughtUp := make(chan error, 1)
		go func() { caughtUp <- b.capture.CatchUp(t.Context(), targetA) }()
		synctest.Wait()
		if len(caughtUp) != 0 {
			t.Errorf("caught up before the author was known: %v", <-caughtUp)
		}
		b.says("alice", uid, version)
		if err := <-caughtUp; err != nil {
			t.Error(err)
		}
		b.expect(t, "a create configmaps/x alice")

		b.targets.Delete(deleted)
		synctest.Wait()
		b.write(configMaps, configMap("x", "2"))
		time.Sleep(2 * grace)
		b.expect(t)
		if len(b.capture.sources) != 0 {
			t.Errorf("%d sources are left", len(b.capture.sources))
		}
	})
}
