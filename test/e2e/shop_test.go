// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/gitserver"
	"github.com/kommit-dev/kommit/test/stack"
)

// target is the name of each shop's GitTarget, branch the one it commits to.
const (
	target = "prod"
	branch = "main"
)

// shop is one test's namespace and repository.
type shop struct {
	t          *testing.T
	namespace  string
	repository *gitserver.Repository
}

// newShop makes one in which alice and bob may edit and save.
func newShop(t *testing.T, options ...func(*stack.Shop)) *shop {
	t.Helper()
	namespace := "shop-" + rand.String(6)
	config := stack.Shop{
		Namespace: namespace, Target: target, Branch: branch, Repository: namespace,
		Users: []string{"alice", "bob"}, Path: "clusters/test",
	}
	for _, option := range options {
		option(&config)
	}
	if err := running.SetUpShop(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, namespace: namespace, repository: running.Git.Repository(namespace)}
	t.Cleanup(s.fsck)
	return s
}

// fsck: G10.
func (s *shop) fsck() {
	cmd := exec.Command("git", "--git-dir="+s.repository.Dir, "fsck", "--strict", "--no-dangling")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Errorf("G10: git fsck --strict: %v\n%s", err, out)
	}
}

// kubectl runs one as user; it has to succeed.
func (s *shop) kubectl(user string, args ...string) string {
	s.t.Helper()
	return s.kubectlInput(user, "", args...)
}

func (s *shop) kubectlInput(user, stdin string, args ...string) string {
	s.t.Helper()
	out, _, err := running.ControlPlane.KubectlInput(s.t.Context(), user, strings.NewReader(stdin), s.inNamespace(args)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// inNamespace puts the flag last: kubectl finds plugins only by what comes
// first.
func (s *shop) inNamespace(args []string) []string {
	return append(args, "--namespace="+s.namespace)
}

// save creates a CommitRequest with the kubectl plugin.
func (s *shop) save(user, name, message string, flags ...string) {
	s.t.Helper()
	s.kubectl(user, append([]string{"create", "commitrequest", name, "--target", target, "-m", message}, flags...)...)
}

// waitReady waits with kubectl, as a user would.
func (s *shop) waitReady(user, name string) *v1alpha1.CommitRequest {
	s.t.Helper()
	s.kubectl(user, "wait", "--for=condition=Ready", "commitrequest/"+name, "--timeout=60s")
	return s.request(name)
}

func (s *shop) client() versioned.Interface {
	s.t.Helper()
	config, err := running.ControlPlane.RESTConfig(controlplane.Admin)
	if err != nil {
		s.t.Fatal(err)
	}
	return versioned.NewForConfigOrDie(config)
}

func (s *shop) request(name string) *v1alpha1.CommitRequest {
	s.t.Helper()
	request, err := s.client().KommitV1alpha1().CommitRequests(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return request
}

// wantConditions checks Ready's reason and the four statuses of DESIGN 4.4; ""
// stands for a condition that is not there.
func wantConditions(t *testing.T, r *v1alpha1.CommitRequest, reason string, ready, reconciling, stalled, pushed metav1.ConditionStatus) {
	t.Helper()
	for kind, want := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionReady: ready, v1alpha1.ConditionReconciling: reconciling,
		v1alpha1.ConditionStalled: stalled, v1alpha1.ConditionPushed: pushed,
	} {
		condition := apimeta.FindStatusCondition(r.Status.Conditions, kind)
		switch {
		case condition == nil && want == "":
		case condition == nil:
			t.Errorf("%s: no condition %s", r.Name, kind)
		case condition.Status != want:
			t.Errorf("%s: %s is %s (%s: %s), want %s", r.Name, kind, condition.Status, condition.Reason, condition.Message, want)
		case kind == v1alpha1.ConditionReady && condition.Reason != reason:
			t.Errorf("%s: Ready's reason is %s (%s), want %s", r.Name, condition.Reason, condition.Message, reason)
		}
	}
}

// wantCommitted checks the row of a pushed commit.
func wantCommitted(t *testing.T, r *v1alpha1.CommitRequest) {
	t.Helper()
	wantConditions(t, r, v1alpha1.ReasonCommitted, metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionTrue)
}

// wantNothing checks a row that is finished without a commit.
func wantNothing(t *testing.T, r *v1alpha1.CommitRequest, reason string) {
	t.Helper()
	wantConditions(t, r, reason, metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionFalse)
	if r.Status.Commit != "" {
		t.Errorf("%s: status.commit is %s, want none", r.Name, r.Status.Commit)
	}
}

// commit is one on the remote branch.
type commit struct {
	hash, author, email, committer, message string
	files                                   []string
}

// commits on the branch, oldest first.
func (s *shop) commits() []commit {
	s.t.Helper()
	if _, err := s.repository.Git(s.t.Context(), "rev-parse", "--verify", "--quiet", "refs/heads/"+branch); err != nil {
		return nil
	}
	hashes := strings.Fields(s.git("rev-list", "--reverse", branch))
	commits := make([]commit, len(hashes))
	for i, hash := range hashes {
		fields := strings.SplitN(s.git("show", "--no-patch", "--format=%an%x00%ae%x00%cn%x00%B", hash), "\x00", 4)
		commits[i] = commit{
			hash: hash, author: fields[0], email: fields[1], committer: fields[2],
			message: strings.TrimRight(fields[3], "\n"),
			files:   strings.Fields(s.git("diff-tree", "--no-commit-id", "--name-only", "--root", "-r", hash)),
		}
	}
	return commits
}

// by returns those of one author: what a namespace's own controllers did comes
// on top of it, in commits of theirs.
func by(author string, commits []commit) []commit {
	var found []commit
	for _, c := range commits {
		if c.author == author {
			found = append(found, c)
		}
	}
	return found
}

func (s *shop) git(args ...string) string {
	s.t.Helper()
	out, err := s.repository.Git(s.t.Context(), args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// path of an object's file (C13).
func (s *shop) path(resource, name string) string {
	return "clusters/test/" + s.namespace + "/" + resource + "/" + name + ".yaml"
}
