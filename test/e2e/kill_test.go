// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
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

// D1, C1: what was written while the server was killed is each author's own, version
// by version, also where two edited one object, and what was open before goes out with
// it.
func TestEditsOfADowntimeAreTheirAuthors(t *testing.T) {
	s := newShop(t) // not parallel: the server is everybody's
	s.kubectl("alice", "create", "configmap", "prices", "--from-literal=apple=1")
	before := s.window("alice", "")
	if err := running.ControlPlane.KillProcess(running.ControlPlane.Process(stack.ServerProcess)); err != nil {
		t.Fatal(err)
	}
	patch := func(user, key string) {
		s.kubectl(user, "patch", "configmap", "prices", "--type=merge", "-p", `{"data":{"`+key+`":"1"}}`)
	}
	patch("alice", "pear")
	patch("bob", "plum")
	patch("alice", "fig")
	if err := running.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.kubectl(controlplane.Admin, "wait", "--for=condition=Available", "apiservice/v1alpha1.kommit.dev", "--timeout=60s")
	s.window("alice", before) // hers of the fig: the three have been taken in
	s.save("alice", "after", "Figs", "--attach-timeout=1m")
	wantCommitted(t, s.waitReady("alice", "after"))
	var told []string
	for _, c := range s.commits() {
		if c.author == "alice" || c.author == "bob" {
			told = append(told, c.author)
		}
	}
	if !slices.Equal(told, []string{"alice", "bob", "alice"}) {
		t.Errorf("commits are by %q, want alice's, bob's, and alice's again", told)
	}
	for key, author := range map[string]string{"apple": "alice", "pear": "alice", "plum": "bob", "fig": "alice"} {
		if blame := s.git("log", "--format=%an", "-S"+key+":", branch); blame != author {
			t.Errorf("%s was added by %q, want %s", key, blame, author)
		}
	}
}

// window waits for an open window of a user that is not the one of that name, and
// returns its name.
func (s *shop) window(user, not string) (name string) {
	s.t.Helper()
	events, err := s.client().KommitV1alpha1().CommitWindows(s.namespace).Watch(s.t.Context(), metav1.ListOptions{FieldSelector: v1alpha1.CommitWindowAuthorField + "=" + user})
	if err != nil {
		s.t.Fatal(err)
	}
	defer events.Stop()
	s.windowNews(events, func(kind watch.EventType, w *v1alpha1.CommitWindow) bool {
		name = w.Name
		return kind != watch.Deleted && name != not
	})
	return name
}
