// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The plugin speaks as kubectl's own create commands do.
func TestCreateOutput(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for want, args := range map[string][]string{
		"commitrequest.kommit.dev/plain created":                   {"plain"},
		"commitrequest.kommit.dev/client created (dry run)":        {"client", "--dry-run=client"},
		"commitrequest.kommit.dev/server created (server dry run)": {"server", "--dry-run=server"},
		"commitrequest.kommit.dev/named":                           {"named", "-o", "name"},
	} {
		out := s.kubectl("alice", append([]string{"create", "commitrequest"}, append(args, "--target", target, "-m", "x", "--attach", "Next")...)...)
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("%v: %q, want %q", args, got, want)
		}
		s.kubectl("alice", "delete", "commitrequest", "--all")
	}
}

// DESIGN 4.6: a dry run has no effect anywhere.
func TestDryRunSavesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl("alice", "create", "configmap", "prices", "--from-literal=apple=1")
	s.save("alice", "tried", "Only tried", "--dry-run=server", "--max-duration=0s")
	_, err := s.client().KommitV1alpha1().CommitRequests(s.namespace).Get(t.Context(), "tried", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a dry run was stored: %v", err)
	}
	s.save("alice", "meant", "Meant", "--max-duration=0s")
	wantCommitted(t, s.waitReady("alice", "meant"))
	if commits := by("alice", s.commits()); len(commits) != 1 || commits[0].message != "Meant" {
		t.Errorf("alice's commits are %+v, want one", commits)
	}
}

// C4: a deletion is the change of the one who asked for it.
func TestDeletionIsSaved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl("alice", "create", "configmap", "prices", "--from-literal=apple=1")
	s.kubectl("alice", "create", "configmap", "banner", "--from-literal=text=hello")
	s.save("alice", "first", "Two", "--max-duration=0s")
	wantCommitted(t, s.waitReady("alice", "first"))
	s.kubectl("bob", "delete", "configmap", "prices")
	s.save("bob", "second", "No prices", "--max-duration=0s")
	wantCommitted(t, s.waitReady("bob", "second"))
	files := strings.Fields(s.git("ls-tree", "-r", "--name-only", branch, "clusters/test/"+s.namespace+"/configmaps/"))
	if len(files) != 1 || files[0] != s.path("configmaps", "banner") {
		t.Errorf("files are %v, want only the banner", files)
	}
	if commits := by("bob", s.commits()); len(commits) != 1 || commits[0].message != "No prices" {
		t.Errorf("bob's commits are %+v, want one", commits)
	}
}

// kubectl get has real columns (server-side table).
func TestColumns(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl("alice", "create", "configmap", "prices", "--from-literal=apple=1")
	s.save("alice", "first", "Prices", "--max-duration=0s")
	request := s.waitReady("alice", "first")
	s.kubectl("alice", "wait", "--for=jsonpath={.status.commit}="+request.Status.Commit, "gittarget/"+target, "--timeout=60s")
	for kind, want := range map[string]string{
		"commitrequests": "NAME READY REASON TARGET AUTHOR COMMIT AGE | first True Committed prod alice " + request.Status.Commit[:12],
		"gittargets":     "NAME READY REASON PROVIDER BRANCH PATH COMMIT AGE | prod True Ready git main clusters/test " + request.Status.Commit[:12],
		"watchrules":     "NAME READY REASON TARGET RESOURCES AGE | apps True Ready prod",
		"gitproviders":   "NAME READY REASON URL AGE | git True Ready " + s.repository.URL,
	} {
		lines := strings.Split(strings.TrimSpace(s.kubectl("alice", "get", kind)), "\n")
		if len(lines) != 2 {
			t.Errorf("%s: %d lines, want a header and one object: %q", kind, len(lines), lines)
			continue
		}
		got := strings.Join(strings.Fields(lines[0]), " ") + " | " + strings.Join(strings.Fields(lines[1]), " ")
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q…", kind, got, want)
		}
	}
}
