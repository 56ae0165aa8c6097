// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
)

// windowNews follows a namespace's windows until is says so, and returns the last
// event.
func (s *shop) windowNews(events watch.Interface, is func(watch.EventType, *v1alpha1.CommitWindow) bool) *v1alpha1.CommitWindow {
	s.t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case e, ok := <-events.ResultChan():
			w, isWindow := e.Object.(*v1alpha1.CommitWindow)
			if !ok || !isWindow {
				s.t.Fatalf("the watch ended: %+v", e.Object)
			}
			if is(e.Type, w) {
				return w
			}
		case <-late:
			s.t.Fatal("the windows did not become as expected")
		}
	}
}

// DESIGN 4.5: what is open now, for whom, held by which request; live.
func TestCommitWindows(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	windows := s.client().KommitV1alpha1().CommitWindows(s.namespace)
	list, err := windows.List(t.Context(), metav1.ListOptions{FieldSelector: v1alpha1.CommitWindowAuthorField + "=alice"})
	if err != nil || len(list.Items) != 0 {
		t.Fatalf("before anybody edits: %+v, %v", list, err)
	}
	events, err := windows.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: v1alpha1.CommitWindowAuthorField + "=alice"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	s.kubectl("alice", "create", "configmap", "settings", "--from-literal=limit=1")
	w := s.windowNews(events, func(kind watch.EventType, _ *v1alpha1.CommitWindow) bool { return kind == watch.Added })
	path := s.path("configmaps", "settings")
	if w.Status.GitTargetRef.Name != target || w.Status.AuthorKind != v1alpha1.AuthorUser || len(w.Status.Changes) != 1 ||
		w.Status.Changes[0].Path != path || w.Status.CommitRequestRef != nil || w.Status.CloseTime == nil {
		t.Errorf("got %+v", w.Status)
	}
	diff, err := windows.GetDiff(t.Context(), w.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(diff.Files) != 1 || diff.Files[0].Path != path || diff.Branch != branch || !strings.Contains(diff.Diff, `+  limit: "1"`) {
		t.Errorf("got %+v", diff)
	}
	if out := s.kubectl("bob", "get", "commitwindows", "-o", "wide"); !strings.Contains(out, "create configmaps/settings") || !strings.Contains(out, "alice") {
		t.Errorf("kubectl shows\n%s", out)
	}

	s.save("alice", "held", "Set the limit", "--max-duration=4s")
	s.windowNews(events, func(_ watch.EventType, w *v1alpha1.CommitWindow) bool {
		return w.Status.CommitRequestRef != nil && w.Status.CommitRequestRef.Name == "held"
	})
	s.windowNews(events, func(kind watch.EventType, _ *v1alpha1.CommitWindow) bool { return kind == watch.Deleted })
	request := s.waitReady("alice", "held")
	wantCommitted(t, request)
	if request.Status.WindowRef == nil || request.Status.WindowRef.Name != w.Name {
		t.Errorf("windowRef is %+v, want %s", request.Status.WindowRef, w.Name)
	}
	// What was shown is what was committed.
	commit, err := s.client().KommitV1alpha1().CommitRequests(s.namespace).GetCommit(t.Context(), "held", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if commit.Diff != diff.Diff || commit.Message != "Set the limit" || commit.Author.Name != "alice" {
		t.Errorf("committed is %+v, the window showed\n%s", commit, diff.Diff)
	}
	if _, err := windows.GetDiff(t.Context(), w.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the diff of a closed window: %v", err)
	}
}

// git applies takes a diff as it is served.
func TestDiffsApply(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl("alice", "create", "configmap", "a", "--from-literal=x=1")
	s.save("alice", "one", "One")
	s.waitReady("alice", "one")
	s.kubectl("alice", "create", "configmap", "b", "--from-literal=text=ünï cödé")
	s.kubectl("alice", "delete", "configmap", "a")
	s.save("alice", "two", "Two")
	wantCommitted(t, s.waitReady("alice", "two"))
	commit, err := s.client().KommitV1alpha1().CommitRequests(s.namespace).GetCommit(t.Context(), "two", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	checkout := t.TempDir()
	patch := filepath.Join(t.TempDir(), "two.patch")
	if err := os.WriteFile(patch, []byte(commit.Diff), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"clone", "--quiet", s.repository.Dir, checkout},
		{"-C", checkout, "checkout", "--quiet", commit.Parents[0]},
		{"-C", checkout, "apply", "--index", patch},
	} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s\n%s", args, err, out, commit.Diff)
		}
	}
	tree, err := exec.CommandContext(t.Context(), "git", "-C", checkout, "write-tree").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := s.git("rev-parse", commit.Hash+"^{tree}"); strings.TrimSpace(string(tree)) != want {
		t.Errorf("the diff leads to tree %s, want %s", tree, want)
	}
}

// gittargets/commits: GET pages through the branch, POST saves.
func TestCommitsOfATarget(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, name := range []string{"one", "two", "three"} {
		s.kubectl("alice", "create", "configmap", name, "--from-literal=name="+name)
		s.save("alice", name, "Save "+name, "--max-duration=0s")
		wantCommitted(t, s.waitReady("alice", name))
	}
	targets := s.client().KommitV1alpha1().GitTargets(s.namespace)
	var got, want []string
	for _, c := range s.commits() {
		want = append([]string{c.hash}, want...)
	}
	options := v1alpha1.CommitListOptions{Limit: 2}
	for page := 0; ; page++ {
		list, err := targets.ListCommits(t.Context(), target, options)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 2 || page > len(want) {
			t.Fatalf("page %d has %d commits", page, len(list.Items))
		}
		for _, c := range list.Items {
			got = append(got, c.Hash)
			if c.Author.Name == "alice" && (c.CommitRequestRef == nil || "Save "+c.CommitRequestRef.Name != c.Message || len(c.Files) != 1) {
				t.Errorf("commit %+v", c)
			}
		}
		if page == 0 { // what is committed meanwhile does not shift the pages
			s.kubectl("bob", "create", "configmap", "four")
			s.save("bob", "four", "Save four", "--max-duration=0s")
			wantCommitted(t, s.waitReady("bob", "four"))
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("listed are %q, want %q", got, want)
	}
	if _, err := targets.ListCommits(t.Context(), target, v1alpha1.CommitListOptions{Limit: 501}); !apierrors.IsBadRequest(err) {
		t.Errorf("limit 501: %v", err)
	}

	config, err := running.ControlPlane.RESTConfig("alice")
	if err != nil {
		t.Fatal(err)
	}
	alice := versioned.NewForConfigOrDie(config).KommitV1alpha1().GitTargets(s.namespace)
	dry, err := alice.CreateCommit(t.Context(), target, &v1alpha1.CommitRequest{Spec: v1alpha1.CommitRequestSpec{Message: "Dry"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || dry.Spec.RequestedBy.Username != "alice" || dry.Spec.GitTargetRef.Name != target {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	if _, err := s.client().KommitV1alpha1().CommitRequests(s.namespace).Get(t.Context(), dry.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run stored something: %v", err)
	}
	s.kubectl("alice", "create", "configmap", "five")
	posted, err := alice.CreateCommit(t.Context(), target, &v1alpha1.CommitRequest{Spec: v1alpha1.CommitRequestSpec{Message: "Posted"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantCommitted(t, s.waitReady("alice", posted.Name))
	if last := s.commits()[len(s.commits())-1]; last.message != "Posted" || last.author != "alice" {
		t.Errorf("the last commit is %+v", last)
	}
}

// Permission to save is permission to create gittargets/commits on that target, and
// can-i says so truly.
func TestCanISave(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for user, want := range map[string]string{"alice": "yes", "eve": "no"} {
		out, _, _ := running.ControlPlane.Kubectl(t.Context(), user, s.inNamespace([]string{"auth", "can-i", "create", "gittargets/" + target, "--subresource=commits"})...)
		if strings.TrimSpace(out) != want {
			t.Errorf("can %s save: %q, want %q", user, out, want)
		}
	}
	s.kubectl(controlplane.Admin, "create", "role", "requests", "--verb=create,get", "--resource=commitrequests.kommit.dev")
	s.kubectl(controlplane.Admin, "create", "rolebinding", "requests", "--role=requests", "--user=eve")
	_, stderr, err := running.ControlPlane.Kubectl(t.Context(), "eve", s.inNamespace([]string{"create", "commitrequest", "mine", "--target", target, "-m", "x"})...)
	if err == nil || !strings.Contains(stderr, "Forbidden") && !strings.Contains(stderr, "forbidden") {
		t.Errorf("eve saves: %v %s", err, stderr)
	}
	resources := s.kubectl("alice", "get", "--raw", "/apis/kommit.dev/v1alpha1")
	var discovered metav1.APIResourceList
	if err := json.Unmarshal([]byte(resources), &discovered); err != nil {
		t.Fatal(err)
	}
	verbs := map[string]string{}
	for _, r := range discovered.APIResources {
		verbs[r.Name] = strings.Join(r.Verbs, ",")
	}
	for resource, want := range map[string]string{
		"gittargets/commits": "create,get", "commitrequests/commits": "get", "commitwindows": "get,list,watch", "commitwindows/diff": "get",
	} {
		if verbs[resource] != want {
			t.Errorf("%s: discovery says %q, want %q", resource, verbs[resource], want)
		}
	}
}

// A deleted target is flushed: its windows are pushed and its requests resolved
// before it goes.
func TestDeletedTargetIsFlushed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl("alice", "create", "configmap", "a")
	s.save("alice", "waiting", "Saved in time", "--max-duration=5m")
	events, err := s.client().KommitV1alpha1().CommitWindows(s.namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: v1alpha1.CommitWindowAuthorField + "=alice"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	s.windowNews(events, func(_ watch.EventType, w *v1alpha1.CommitWindow) bool { return w.Status.CommitRequestRef != nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, _, err := running.ControlPlane.Kubectl(ctx, controlplane.Admin, s.inNamespace([]string{"delete", "gittarget", target, "--wait"})...); err != nil {
		t.Fatal(err)
	}
	wantCommitted(t, s.request("waiting"))
	if commits := by("alice", s.commits()); len(commits) != 1 || commits[0].message != "Saved in time" {
		t.Errorf("commits are %+v", commits)
	}
}
