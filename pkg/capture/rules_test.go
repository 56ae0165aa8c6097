// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// Rules come, change and go while the watch runs.
func TestRulesAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.rules.Add(newRule("r", "a", core("configmaps")))
		synctest.Wait()
		if got := b.status("r", v1alpha1.ConditionStalled); got != "True TargetNotFound" {
			t.Errorf("Stalled is %q", got)
		}
		b.target("a")
		synctest.Wait()
		if got := b.status("r", v1alpha1.ConditionReady); got != "True Ready" {
			t.Errorf("Ready is %q", got)
		}
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")

		// A narrower rule is no reason to remove files.
		narrow := newRule("r", "a", core("configmaps"))
		narrow.Spec.Resources[0].Names = []string{"y"}
		b.rules.Modify(narrow)
		synctest.Wait()
		_, version = b.write(configMaps, configMap("x", "2"))
		b.says("alice", uid, version)
		b.remove(configMaps, "x")
		b.says("alice", uid, "deleted")
		b.expect(t)

		b.rules.Delete(narrow)
		synctest.Wait()
		b.write(configMaps, configMap("y", "1"))
		time.Sleep(2 * grace)
		b.expect(t)
		if len(b.capture.sources) != 0 {
			t.Errorf("%d sources are left", len(b.capture.sources))
		}
	})
}

// 4.3, C9: each problem is said on the rule; other resources are captured.
func TestRuleStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) {
			b.forbidden["services"] = true
			b.target("a")
			b.rules.Add(newRule("secrets", "a", core("secrets", "configmaps")))
			b.rules.Add(newRule("unknown", "a", core("widgets"), core("configmaps")))
			b.rules.Add(newRule("group", "a", core("deployments")))
			b.rules.Add(newRule("cluster", "a", core("namespaces")))
			b.rules.Add(newRule("forbidden", "a", core("services", "configmaps")))
			b.rules.Add(newRule("good", "a", core("configmaps"), v1alpha1.WatchedResources{APIGroups: []string{"apps"}, Resources: []string{"deployments"}}))
		})
		for rule, want := range map[string]string{
			"secrets": "SensitiveResource", "unknown": "UnknownResource", "group": "UnknownResource",
			"cluster": "UnknownResource", "forbidden": "ListFailed",
		} {
			if got := b.status(rule, v1alpha1.ConditionStalled); got != "True "+want {
				t.Errorf("%s: Stalled is %q", rule, got)
			}
			if got := b.status(rule, v1alpha1.ConditionReady); got != "False "+want {
				t.Errorf("%s: Ready is %q", rule, got)
			}
		}
		if got := b.status("good", v1alpha1.ConditionReady); got != "True Ready" {
			t.Errorf("good: Ready is %q", got)
		}
		if b.lists["secrets"] != 0 || b.lists["widgets"] != 0 {
			t.Errorf("lists: %v", b.lists)
		}
		uid, version := b.write(configMaps, configMap("x", "1"))
		b.says("alice", uid, version)
		b.expect(t, "a create configmaps/x alice")
		writes := b.writes
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if b.writes != writes {
			t.Errorf("%d statuses written although nothing changed", b.writes-writes)
		}

		// The missing permission is granted.
		b.cluster.mu.Lock()
		b.forbidden["services"] = false
		b.cluster.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := b.status("forbidden", v1alpha1.ConditionReady); got != "True Ready" {
			t.Errorf("forbidden: Ready is %q", got)
		}
	})
}
