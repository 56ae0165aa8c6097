// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/gitserver"
	"github.com/kommit-dev/kommit/test/stack"
)

// UC1: until Save nothing is pushed; then exactly one commit with that message
// and that author, whose hash is reported.
func TestUC1Save(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl("alice", "create", "deployment", "web", "--image=nginx:1.27")
	s.save("alice", "first", "Deploy the web shop")
	s.waitReady("alice", "first")
	before := s.commits()

	s.kubectl("alice", "set", "image", "deployment/web", "nginx=nginx:1.28")
	// That nothing happens can only be watched for a while.
	<-time.After(10 * time.Second)
	if now := s.commits(); len(now) != len(before) {
		t.Fatalf("%d commits before anybody saved, want %d", len(now), len(before))
	}

	message := "Roll out nginx 1.28\n\nThe old one has a hole.\n  Indented, Ünïcode 👋."
	s.save("alice", "second", message)
	request := s.waitReady("alice", "second")
	wantCommitted(t, request)
	commits := s.commits()
	if len(commits) != len(before)+1 {
		t.Fatalf("%d commits after the save, want %d", len(commits), len(before)+1)
	}
	last := commits[len(commits)-1]
	if last.message != message {
		t.Errorf("message is %q, want %q", last.message, message)
	}
	if last.author != "alice" || last.email != "alice@example.com" {
		t.Errorf("author is %s <%s>, want alice <alice@example.com>", last.author, last.email)
	}
	file := s.path("deployments.apps", "web")
	if !slices.Equal(last.files, []string{file}) {
		t.Errorf("files are %v, want only %s", last.files, file)
	}
	content := s.git("show", branch+":"+file)
	if !strings.Contains(content, "image: nginx:1.28") {
		t.Errorf("%s does not have the new image:\n%s", file, content)
	}
	for _, noise := range []string{"status:", "resourceVersion:", "uid:", "managedFields:", "creationTimestamp:", "generation:"} {
		if strings.Contains(content, noise) {
			t.Errorf("C2: %s has %s", file, noise)
		}
	}
	if request.Status.Commit != last.hash || request.Status.Branch != branch {
		t.Errorf("status says %s on %s, want %s on %s", request.Status.Commit, request.Status.Branch, last.hash, branch)
	}
	if request.Spec.RequestedBy.Username != "alice" || request.Status.CompletionTime == nil {
		t.Errorf("requestedBy %q, completionTime %v", request.Spec.RequestedBy.Username, request.Status.CompletionTime)
	}
}

// UC2: a bundle whose first document is the CommitRequest lands in one commit.
func TestUC2Bundle(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var bundle strings.Builder
	fmt.Fprintf(&bundle, `apiVersion: kommit.dev/v1alpha1
kind: CommitRequest
metadata: {name: release}
spec:
  gitTargetRef: {name: %s}
  message: Release 7
`, target)
	want := []string{}
	for i := range 5 {
		fmt.Fprintf(&bundle, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings-%d}\ndata: {number: \"%d\"}\n", i, i)
		want = append(want, s.path("configmaps", fmt.Sprintf("settings-%d", i)))
	}
	for _, name := range []string{"api", "web"} {
		fmt.Fprintf(&bundle, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: main, image: "registry.example.com/%[1]s:1"}]}
`, name)
		want = append(want, s.path("deployments.apps", name))
	}
	s.kubectlInput("alice", bundle.String(), "apply", "-f", "-")
	request := s.waitReady("alice", "release")
	wantCommitted(t, request)
	commits := by("alice", s.commits())
	if len(commits) != 1 {
		t.Fatalf("%d commits by alice, want 1", len(commits))
	}
	slices.Sort(want)
	if !slices.Equal(commits[0].files, want) || commits[0].message != "Release 7" {
		t.Errorf("commit %q has %v, want %v", commits[0].message, commits[0].files, want)
	}
	if commits[0].hash != request.Status.Commit {
		t.Errorf("status.commit is %s, want %s", request.Status.Commit, commits[0].hash)
	}
}

// Two people at once: each has their own commit with exactly their objects.
func TestTwoPeopleSaveAtOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	want := map[string][]string{}
	for i := range 3 {
		for _, user := range []string{"alice", "bob"} {
			name := fmt.Sprintf("%s-%d", user, i)
			s.kubectl(user, "create", "configmap", name, "--from-literal=by="+user)
			want[user] = append(want[user], s.path("configmaps", name))
		}
	}
	s.save("bob", "bobs", "What bob did")
	s.save("alice", "alices", "What alice did")
	for _, user := range []string{"alice", "bob"} {
		request := s.waitReady(user, user+"s")
		wantCommitted(t, request)
		commits := by(user, s.commits())
		if len(commits) != 1 {
			t.Fatalf("%d commits by %s, want 1", len(commits), user)
		}
		if !slices.Equal(commits[0].files, want[user]) || commits[0].message != "What "+user+" did" || commits[0].hash != request.Status.Commit {
			t.Errorf("%s: commit %+v, want files %v and the hash %s", user, commits[0], want[user], request.Status.Commit)
		}
	}
}

// Nothing pending: NoOpenWindow, and no commit.
func TestNothingToSave(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	before := len(s.commits())
	s.save("alice", "nothing", "Nothing at all", "--attach-timeout=0s")
	wantNothing(t, s.waitReady("alice", "nothing"), v1alpha1.ReasonNoOpenWindow)
	if now := len(s.commits()); now != before {
		t.Errorf("%d commits, want %d", now, before)
	}
}

// Only another's window: WindowMismatch, and the other's window is untouched.
func TestOnlyAnothersWindow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl("bob", "create", "configmap", "prices", "--from-literal=apple=1")
	s.save("alice", "not-mine", "Mine?", "--attach-timeout=1s")
	wantNothing(t, s.waitReady("alice", "not-mine"), v1alpha1.ReasonWindowMismatch)
	if commits := by("bob", s.commits()); len(commits) != 0 {
		t.Fatalf("bob's window was committed by alice's save: %+v", commits)
	}
	s.save("bob", "mine", "Prices")
	wantCommitted(t, s.waitReady("bob", "mine"))
	if commits := by("bob", s.commits()); len(commits) != 1 || commits[0].message != "Prices" {
		t.Errorf("bob's commits are %+v, want one with his message", commits)
	}
}

// W15: a re-asserted state is AlreadyPresent, promptly.
func TestAlreadyPresent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl("alice", "create", "configmap", "prices", "--from-literal=apple=1")
	s.save("alice", "first", "Prices")
	wantCommitted(t, s.waitReady("alice", "first"))
	// There and back again: two changes of intent, none that Git would see.
	s.kubectl("alice", "patch", "configmap", "prices", "--type=merge", `--patch={"data":{"apple":"2"}}`)
	s.kubectl("alice", "patch", "configmap", "prices", "--type=merge", `--patch={"data":{"apple":"1"}}`)
	before := len(s.commits())
	s.save("alice", "again", "Prices again", "--max-duration=0s")
	wantNothing(t, s.waitReady("alice", "again"), v1alpha1.ReasonAlreadyPresent)
	if now := len(s.commits()); now != before {
		t.Errorf("%d commits, want %d", now, before)
	}
}

// G2, G3: a foreign commit between edit and save stays, ours comes on top, and
// the hash is the one on the remote.
func TestRemoteMoved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl("alice", "create", "configmap", "prices", "--from-literal=apple=1")
	s.save("alice", "first", "Prices")
	s.waitReady("alice", "first")
	s.kubectl("alice", "patch", "configmap", "prices", "--type=merge", `--patch={"data":{"apple":"2"}}`)
	foreign, err := s.repository.Commit(t.Context(), branch, gitserver.ForeignCommit{Message: "From elsewhere", Files: map[string]string{"README.md": "hello\n"}})
	if err != nil {
		t.Fatal(err)
	}
	s.save("alice", "second", "Dearer")
	request := s.waitReady("alice", "second")
	wantCommitted(t, request)
	commits := s.commits()
	last := commits[len(commits)-1]
	if last.hash != request.Status.Commit || last.message != "Dearer" {
		t.Errorf("the tip is %+v, want %s", last, request.Status.Commit)
	}
	if commits[len(commits)-2].hash != foreign {
		t.Errorf("the foreign commit %s is not below ours: %+v", foreign, commits)
	}
	if got := s.git("show", branch+":README.md"); got != "hello" {
		t.Errorf("README.md of the foreign commit is %q", got)
	}
}

// Remote unreachable: not terminal, the error is told, and it succeeds when the
// remote is back.
func TestRemoteUnreachable(t *testing.T) {
	s := newShop(t) // not parallel: the Git server is everybody's
	s.kubectl("alice", "create", "configmap", "prices", "--from-literal=apple=1")
	if err := running.Git.Down(); err != nil {
		t.Fatal(err)
	}
	s.save("alice", "patient", "Prices")
	s.kubectl("alice", "wait", `--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=WaitingForPush`, "commitrequest/patient", "--timeout=60s")
	request := s.request("patient")
	wantConditions(t, request, v1alpha1.ReasonWaitingForPush, metav1.ConditionFalse, metav1.ConditionTrue, "", metav1.ConditionFalse)
	if request.Status.CompletionTime != nil || request.Status.Commit != "" {
		t.Errorf("completionTime %v, commit %q while it waits", request.Status.CompletionTime, request.Status.Commit)
	}
	if err := running.Git.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	request = s.waitReady("alice", "patient")
	wantCommitted(t, request)
	if commits := by("alice", s.commits()); len(commits) != 1 || commits[0].hash != request.Status.Commit {
		t.Errorf("alice's commits are %+v, want one: %s", commits, request.Status.Commit)
	}
}

// DESIGN 4.2: without attribution the requester is the author, whoever edited.
func TestNoAttribution(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(c *stack.Shop) { c.Attribution = string(v1alpha1.AttributionNone) })
	s.kubectl("bob", "create", "configmap", "prices", "--from-literal=apple=1")
	s.save("alice", "ours", "Prices", "--max-duration=0s")
	request := s.waitReady("alice", "ours")
	wantCommitted(t, request)
	if commits := by("alice", s.commits()); len(commits) != 1 || !slices.Contains(commits[0].files, s.path("configmaps", "prices")) {
		t.Errorf("alice's commits are %+v, want one with bob's edit", commits)
	}
}

// Edits and deletions made while kommit was down are not lost (C9).
func TestEditsWhileDown(t *testing.T) {
	s := newShop(t) // not parallel: the server is everybody's
	s.kubectl("alice", "create", "configmap", "prices", "--from-literal=apple=1")
	s.kubectl("alice", "create", "configmap", "banner", "--from-literal=text=hello")
	s.save("alice", "first", "Prices")
	wantCommitted(t, s.waitReady("alice", "first"))
	if err := running.StopServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.kubectl("bob", "patch", "configmap", "prices", "--type=merge", `--patch={"data":{"apple":"2"}}`)
	if err := running.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.kubectl(controlplane.Admin, "wait", "--for=condition=Available", "apiservice/v1alpha1.kommit.dev", "--timeout=60s")
	s.save("bob", "later", "Dearer", "--attach-timeout=1m")
	request := s.waitReady("bob", "later")
	wantCommitted(t, request)
	if got := s.git("show", branch+":"+s.path("configmaps", "prices")); !strings.Contains(got, `apple: "2"`) {
		t.Errorf("the edit made while kommit was down is not in Git:\n%s", got)
	}
	if commits := by("bob", s.commits()); len(commits) != 1 {
		t.Errorf("%d commits by bob, want 1", len(commits))
	}
}
