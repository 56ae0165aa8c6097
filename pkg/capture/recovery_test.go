// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

var targetA = types.NamespacedName{Namespace: "shop", Name: "a"}

// W18: what came to nothing reaches Git although no suspension was ever seen; what
// Git has already is left alone.
func TestRecompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		uid, version = b.write(configMaps, configMap("saved", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice", "a create configmaps/saved alice")
		b.branches.mu.Lock()
		b.files[window.Object{Resource: "configmaps", Namespace: "shop", Name: "saved"}] =
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: saved\n  namespace: shop\ndata:\n  k: \"1\"\n"
		b.branches.mu.Unlock()
		b.capture.Recompare(targetA)
		b.expect(t, "a update configmaps/x alice")
		time.Sleep(time.Hour)
		b.expect(t)
	})
}

// W18: nothing is compared for a suspended target, whose changes would come to
// nothing again; the comparison is kept until it resumes.
func TestRecompareWaitsForResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			b.target("a", func(s *v1alpha1.GitTargetSpec) { s.Suspend = true })
			b.rules.Add(newRule("r", "a", core("configmaps")))
		})
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")
		lists := b.lists["configmaps"]
		for range 3 {
			b.capture.Recompare(targetA)
			time.Sleep(time.Hour)
		}
		b.expect(t)
		if b.lists["configmaps"] != lists {
			t.Errorf("%d lists for a suspended target", b.lists["configmaps"]-lists)
		}
		b.targets.Modify(&v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop"}})
		b.expect(t, "a update configmaps/x alice")
		time.Sleep(time.Hour)
		b.expect(t)
	})
}

// C9: a GitTarget of the same name is another one, with a branch that was not
// compared yet.
func TestReplacedTargetIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")
		b.targets.Modify(&v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", UID: "another"}})
		b.expect(t, "a update configmaps/x alice")
	})
}

// C9, 5.5: a comparison that failed is repeated as soon as there is a reason to hope,
// and saves no longer wait for it then.
func TestFailedBaselineIsWoken(t *testing.T) {
	for name, wake := range map[string]func(*bench){
		"Retry":     func(b *bench) { b.capture.Retry(targetA) },
		"Recompare": func(b *bench) { b.capture.Recompare(targetA) },
		"GitTarget": func(b *bench) {
			b.targets.Modify(&v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", Generation: 2}})
		},
		"rule": func(b *bench) { b.rules.Add(newRule("another", "a", core("services"))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, func(b *bench) {
					b.fail = errors.New("unreachable")
					b.target("a")
					b.rules.Add(newRule("r", "a", core("configmaps")))
					b.write(configMaps, configMap("x", "1", old))
					time.Sleep(time.Hour)
				})
				time.Sleep(time.Hour + time.Second) // in the midst of a wait
				b.capture.Retry(targetA)            // in vain
				b.expect(t)
				time.Sleep(lastRetry / 2)
				b.branches.mu.Lock()
				b.fail = nil
				b.branches.mu.Unlock()
				wake(b)
				b.expect(t, "a resync update:x")
				start := time.Now()
				if err := b.capture.CatchUp(t.Context(), targetA); err != nil || time.Since(start) != 0 {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				time.Sleep(time.Hour)
				b.expect(t)
			})
		})
	}
}

// 5.5: a reason for a comparison that comes up during one is answered by another.
func TestRecompareDuringComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")
		b.gate = make(chan struct{})
		b.capture.Recompare(targetA)
		synctest.Wait()
		b.capture.Recompare(targetA)
		b.expect(t)
		close(b.gate)
		b.expect(t, "a update configmaps/x alice")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.capture.CatchUp(ctx, targetA); err != nil {
			t.Error(err)
		}
	})
}

// A retry without anything that failed reads nothing.
func TestRetryOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		lists := b.lists["configmaps"]
		b.capture.Retry(targetA)
		b.capture.Retry(types.NamespacedName{Namespace: "shop", Name: "unknown"})
		b.capture.Recompare(types.NamespacedName{Namespace: "shop", Name: "unknown"})
		time.Sleep(time.Hour)
		b.expect(t)
		if b.lists["configmaps"] != lists {
			t.Errorf("%d lists", b.lists["configmaps"]-lists)
		}
	})
}

// 4.3: discovery that fails, or leaves a group out, stops nothing that runs; also
// while a rule with a mistake has discovery refreshed time and again.
func TestDiscoveryFailureStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			oneTarget(b)
			b.rules.Add(newRule("mistaken", "a", core("configmap-s")))
		})
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")
		group := ""
		for _, answer := range []func(){
			func() { b.discovery.answer(errors.New("connection refused"), nil) },
			func() { b.discovery.answer(nil, &group) },
			func() { b.discovery.answer(nil, nil) },
		} {
			answer()
			time.Sleep(time.Minute)
			if got := b.status("r", v1alpha1.ConditionReady); got != "True Ready" {
				t.Errorf("Ready is %q", got)
			}
			_, version = b.write(configMaps, configMap("x", version))
			b.says("bob", uid, version)
			b.expect(t, "a update configmaps/x bob")
		}
		if b.watches["configmaps"] != 1 {
			t.Errorf("%d watches", b.watches["configmaps"])
		}
		// What was never found is not made up.
		if got := b.status("mistaken", v1alpha1.ConditionStalled); got != "True UnknownResource" {
			t.Errorf("Stalled is %q", got)
		}
	})
}

// 4.3: a resource that the server itself answers 404 for is gone, and is found when
// it comes back.
func TestResourceGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			b.target("a")
			b.rules.Add(newRule("r", "a", core("configmaps"), v1alpha1.WatchedResources{APIGroups: []string{"apps"}, Resources: []string{"deployments"}}))
		})
		group := "apps"
		b.discovery.answer(nil, &group)
		b.cluster.mu.Lock()
		b.absent[deployments] = true
		b.cluster.mu.Unlock()
		b.expire(deployments)
		time.Sleep(5 * time.Minute)
		if got := b.status("r", v1alpha1.ConditionStalled); got != "True UnknownResource" {
			t.Errorf("Stalled is %q", got)
		}
		if len(b.capture.sources) != 1 {
			t.Errorf("%d sources", len(b.capture.sources))
		}
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")

		b.discovery.answer(nil, nil)
		b.cluster.mu.Lock()
		b.absent[deployments] = false
		b.cluster.mu.Unlock()
		time.Sleep(unknownRetry + time.Second)
		if got := b.status("r", v1alpha1.ConditionReady); got != "True Ready" {
			t.Errorf("Ready is %q", got)
		}
	})
}

// C9: a CustomResourceDefinition's version makes way for another one. Its objects are
// captured in the new one, which Git is compared with; whether or not the old one is
// served still.
func TestVersionChanges(t *testing.T) {
	for name, gone := range map[string]bool{"the old one is gone": true, "the old one is served, too": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := schema.GroupVersionResource{Group: "apps", Version: "v2", Resource: "deployments"}
				b := newBench(t, func(b *bench) {
					b.target("a")
					b.rules.Add(newRule("r", "a", v1alpha1.WatchedResources{APIGroups: []string{"apps"}, Resources: []string{"deployments"}}))
				})
				in := func(version string) *unstructured.Unstructured {
					u := configMap("x", version)
					u.SetAPIVersion("apps/" + version)
					u.SetKind("Deployment")
					return u
				}
				uid, version := b.write(deployments, in("v1"))
				b.says("alice", uid, version)
				b.expect(t, "a create deployments/x alice")

				b.write(next, in("v2"))
				time.Sleep(2 * grace) // as a conversion of what is long there
				groups := served()
				groups[1].Group.Versions = append(groups[1].Group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: "apps/v2", Version: "v2"})
				groups[1].Group.PreferredVersion = groups[1].Group.Versions[1]
				groups[1].VersionedResources["v2"] = groups[1].VersionedResources["v1"]
				if gone {
					delete(groups[1].VersionedResources, "v1")
					groups[1].Group.Versions = groups[1].Group.Versions[1:]
				}
				b.discovery.serve(groups)
				if gone {
					b.cluster.mu.Lock()
					b.absent[deployments] = true
					b.cluster.mu.Unlock()
					b.expire(deployments)
				}
				time.Sleep(2 * discoveryRefresh)
				b.expect(t, "a resync update:x")
				if got := b.status("r", v1alpha1.ConditionReady); got != "True Ready" {
					t.Errorf("Ready is %q", got)
				}
				uid, version = b.write(next, in("v2b"))
				b.says("bob", uid, version)
				b.expect(t, "a update deployments/x bob")
			})
		})
	}
}
