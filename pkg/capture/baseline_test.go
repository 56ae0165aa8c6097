// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

// C9: the first list is compared with Git.
func TestBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := window.Object{Resource: "configmaps", Namespace: "shop", Name: "gone"}
		b := newBench(t, func(b *bench) {
			b.target("a", func(s *v1alpha1.GitTargetSpec) { s.Prune = true })
			b.target("keep")
			b.rules.Add(newRule("r", "a", core("configmaps", "services")))
			b.rules.Add(newRule("keep", "keep", core("configmaps")))
			uid, version := b.write(configMaps, configMap("known", "1"))
			b.says("alice", uid, version)
			b.write(configMaps, configMap("same", "1"))
			b.write(configMaps, configMap("old", "1"))
			b.write(services, configMap("older", "1"))
			b.files[window.Object{Resource: "configmaps", Namespace: "shop", Name: "same"}] =
				"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: same\n  namespace: shop\ndata:\n  k: \"1\"\n"
			b.orphans = []window.Object{gone}
			time.Sleep(time.Hour)
			b.write(configMaps, configMap("young", "1"))
		})
		synctest.Wait()
		got := map[string]bool{}
		for _, entry := range b.take() {
			got[entry] = true
		}
		for _, want := range []string{
			"a update configmaps/known alice", "a resync update:old delete:gone update:older",
			"keep update configmaps/known alice", "keep resync update:old",
		} {
			if !got[want] {
				t.Errorf("missing %q", want)
			}
			delete(got, want)
		}
		if len(got) > 0 {
			t.Errorf("too much: %v", got)
		}
		time.Sleep(grace)
		synctest.Wait()
		if got := b.take(); len(got) != 2 {
			t.Errorf("the young object: %q", got)
		}
		// All were told of everything: a relist has nothing to say.
		b.expire(configMaps)
		time.Sleep(5 * time.Minute)
		b.expect(t)
	})
}

// C9: prune removes files of claimed objects only.
func TestPruneKeepsWhatIsNotClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			b.target("a", func(s *v1alpha1.GitTargetSpec) { s.Prune = true })
			named := core("configmaps")
			named.Names = []string{"x", "owned", "gone"}
			b.rules.Add(newRule("r", "a", named))
			b.write(configMaps, configMap("owned", "1", func(u *unstructured.Unstructured) {
				u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "K", Name: "o", UID: "u", Controller: new(true)}})
			}))
			for _, name := range []string{"gone", "other", "owned"} {
				b.orphans = append(b.orphans, window.Object{Resource: "configmaps", Namespace: "shop", Name: name})
			}
		})
		b.expect(t, "a resync delete:gone")
	})
}

// C9: a comparison that fails is repeated, and nothing is handed on until then.
func TestBaselineRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			b.fail = errors.New("unreachable")
			oneTarget(b)
			b.write(configMaps, configMap("x", "1", old))
			time.Sleep(time.Hour)
		})
		b.expect(t)
		if got := b.status("r", v1alpha1.ConditionReady); got != "False Progressing" {
			t.Errorf("Ready is %q", got)
		}
		// A change meanwhile is a change, and no part of the resync.
		uid, version := b.write(configMaps, configMap("x", "2"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")
		b.branches.mu.Lock()
		b.fail = nil
		b.branches.mu.Unlock()
		time.Sleep(2 * lastRetry)
		b.expect(t)
		if got := b.status("r", v1alpha1.ConditionReady); got != "True Ready" {
			t.Errorf("Ready is %q", got)
		}
	})
}

// C9: what happened while the watch was away.
func TestRelistAfterGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		changed, version := b.write(configMaps, configMap("changed", "1"))
		b.says("alice", changed, version)
		removed, version := b.write(configMaps, configMap("removed", "1"))
		b.says("alice", removed, version)
		replaced, version := b.write(configMaps, configMap("replaced", "1"))
		b.says("alice", replaced, version)
		synctest.Wait()
		b.take()

		b.disconnect(configMaps)
		intent := func(u *unstructured.Unstructured) {
			u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", Time: new(metav1.Now())}})
		}
		_, version = b.write(configMaps, configMap("changed", "2", intent))
		b.says("bob", changed, version)
		b.remove(configMaps, "removed")
		b.says("bob", removed, "deleted")
		b.remove(configMaps, "replaced")
		b.says("bob", replaced, "deleted")
		again, version := b.write(configMaps, configMap("replaced", "2", intent))
		b.says("carol", again, version)
		b.expire(configMaps)
		time.Sleep(5 * time.Second)
		b.expect(t,
			"a delete configmaps/removed bob",
			"a update configmaps/changed bob",
			"a delete configmaps/replaced bob",
			"a update configmaps/replaced carol")
	})
}

// A list shows who wrote last; that need not be who made the change.
func TestGapNamesNobodyWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")
		b.disconnect(configMaps)
		_, version = b.write(configMaps, configMap("x", "2"))
		b.says("bob", uid, version)
		_, version = b.write(configMaps, configMap("x", "2", func(u *unstructured.Unstructured) {
			u.SetManagedFields([]metav1.ManagedFieldsEntry{
				{Manager: "bob", Operation: "Update", Time: new(metav1.Now())},
				{Manager: "c", Operation: "Update", Subresource: "status", Time: new(metav1.Now())},
			})
		}))
		b.says("controller", uid, version)
		b.expire(configMaps)
		time.Sleep(5 * time.Second)
		b.expect(t, "a update configmaps/x unresolved")
	})
}

// W18: what happened during a suspension is compared on resume.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suspend := func(s *v1alpha1.GitTargetSpec) { s.Suspend = true }
		b := newBench(t, func(b *bench) {
			b.target("a", suspend)
			b.rules.Add(newRule("r", "a", core("configmaps")))
		})
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice") // the engine knows what to do with it
		time.Sleep(time.Hour)
		b.targets.Modify(&v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop"}})
		b.expect(t, "a update configmaps/x alice")
	})
}
