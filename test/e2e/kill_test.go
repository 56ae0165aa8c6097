// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/stack"
)

// C5, D1: what the audit webhook was answered 200 for is known after a kill -9: the
// edit is its author's still, not a resync's.
func TestFactsSurviveAKill(t *testing.T) {
	s := newShop(t) // not parallel: the server is everybody's
	events, err := s.client().KommitV1alpha1().CommitWindows(s.namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: v1alpha1.CommitWindowAuthorField + "=alice"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	s.kubectl("alice", "create", "configmap", "prices", "--from-literal=apple=1")
	s.windowNews(events, func(kind watch.EventType, _ *v1alpha1.CommitWindow) bool { return kind == watch.Added }) // its fact is here
	if err := running.ControlPlane.KillProcess(running.ControlPlane.Process(stack.ServerProcess)); err != nil {
		t.Fatal(err)
	}
	if err := running.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.kubectl(controlplane.Admin, "wait", "--for=condition=Available", "apiservice/v1alpha1.kommit.dev", "--timeout=60s")
	s.save("alice", "after", "Prices", "--attach-timeout=1m")
	wantCommitted(t, s.waitReady("alice", "after"))
	commits := by("alice", s.commits())
	if len(commits) != 1 || len(commits[0].files) != 1 || commits[0].files[0] != s.path("configmaps", "prices") || commits[0].message != "Prices" {
		t.Errorf("alice's commits are %+v, want one with her edit", commits)
	}
}
