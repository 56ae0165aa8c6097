// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capturing proves on real parts what capture does at its edges (C1, C9,
// DESIGN 4.3): first starts, gaps, rules and kinds that come and go.
package capturing

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/gitserver"
	"github.com/kommit-dev/kommit/test/stack"
	"github.com/kommit-dev/kommit/test/stack/stacktest"
)

const (
	branch = "main"
	// grace after which a change has no author. Audit events come within a second.
	grace    = 5 * time.Second
	patience = 2 * time.Minute
	// committer of what nobody is named for.
	committer = "kommit"
)

// running is shared by all tests; each has a namespace and a repository of its
// own.
var running *stack.Stack

func TestMain(m *testing.M) {
	os.Exit(stacktest.Run(m, stack.Config{
		// Batches, as kube-apiserver sends them by default, but for the wait of 30 s.
		AuditFlags: []string{"--audit-webhook-mode=batch", "--audit-webhook-batch-max-wait=1s"},
		ServerArgs: []string{"--attribution-grace=" + grace.String(), "--catch-up-timeout=1m"},
	}, func(s *stack.Stack) { running = s }))
}

// shop is a namespace with a repository, in which alice and bob may edit.
type shop struct {
	t          *testing.T
	namespace  string
	repository *gitserver.Repository
	kommit     versioned.Interface
}

func newShop(t *testing.T, namespace string) *shop {
	t.Helper()
	repository, err := running.Git.Create(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	config, err := running.ControlPlane.RESTConfig(controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, namespace: namespace, repository: repository, kommit: versioned.NewForConfigOrDie(config)}
	s.kubectl("create", "namespace", namespace)
	s.kubectl("create", "rolebinding", "people", "--clusterrole=edit", "--user=alice", "--user=bob")
	s.kubectl("create", "secret", "generic", "git", "--type=kubernetes.io/basic-auth",
		"--from-literal=username="+stack.GitUsername, "--from-literal=password="+stack.GitPassword)
	s.apply(fmt.Sprintf(`
apiVersion: kommit.dev/v1alpha1
kind: GitProvider
metadata: {name: git}
spec:
  url: %s
  secretRef: {name: git}
  commit: {committer: {name: %s, email: kommit@example.com}, author: {emailDomain: example.com}}
`, repository.URL, committer))
	t.Cleanup(func() {
		if err := repository.Fsck(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("G10: %v", err)
		}
	})
	return s
}

// target makes one whose windows close soon, with more lines of its spec.
func (s *shop) target(name string, lines ...string) {
	s.t.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: kommit.dev/v1alpha1
kind: GitTarget
metadata: {name: %[1]s}
spec:
  gitProviderRef: {name: git}
  branch: %[2]s
  path: %[1]s
  window: {idleTimeout: 1s, maxDuration: 10s}
  %[3]s
`, name, branch, strings.Join(lines, "\n  ")))
}

// rule captures resources for a target, in the words of spec.resources.
func (s *shop) rule(name, target, resources string) {
	s.t.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: kommit.dev/v1alpha1
kind: WatchRule
metadata: {name: %s}
spec:
  gitTargetRef: {name: %s}
  resources: %s
`, name, target, resources))
}

// core are resources of the core group, as rule takes them.
func core(resources ...string) string {
	return fmt.Sprintf(`[{apiGroups: [""], resources: [%s]}]`, strings.Join(resources, ", "))
}

func (s *shop) kubectl(args ...string) string {
	s.t.Helper()
	return s.as(controlplane.Admin, "", args...)
}

func (s *shop) apply(manifest string) {
	s.t.Helper()
	s.as(controlplane.Admin, manifest, "apply", "--filename=-")
}

func (s *shop) as(user, stdin string, args ...string) string {
	s.t.Helper()
	out, _, err := running.ControlPlane.KubectlInput(s.t.Context(), user, strings.NewReader(stdin), append(args, "--namespace="+s.namespace)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// cluster is a client of the cluster as the user.
func (s *shop) cluster(user string) kubernetes.Interface {
	s.t.Helper()
	config, err := running.ControlPlane.RESTConfig(user)
	if err != nil {
		s.t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config)
}

func (s *shop) waitRule(name, condition string) {
	s.t.Helper()
	s.kubectl("wait", "--for="+condition, "watchrule/"+name, "--timeout="+patience.String())
}

// await returns once it is so. What is waited for ends in a push, and each changes
// the target's status.
func (s *shop) await(target, what string, is func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	events, err := s.kommit.KommitV1alpha1().GitTargets(s.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + target})
	if err != nil {
		s.t.Fatal(err)
	}
	defer events.Stop()
	for !is() {
		if _, ok := <-events.ResultChan(); !ok {
			s.t.Fatalf("%s: not within %s; the log is\n%s", what, patience, s.git("log", "--format=%an: %B", branch))
		}
	}
}

func (s *shop) git(args ...string) string {
	s.t.Helper()
	out, err := s.repository.Git(s.t.Context(), args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// commit is one on the branch.
type commit struct {
	author, subject string
	// files by what happened to them, as git says it: "M path".
	files []string
}

// commits of a target's path, oldest first.
func (s *shop) commits(target string) []commit {
	s.t.Helper()
	if _, err := s.repository.Git(s.t.Context(), "rev-parse", "--verify", "--quiet", "refs/heads/"+branch); err != nil {
		return nil
	}
	var commits []commit
	for hash := range strings.FieldsSeq(s.git("rev-list", "--reverse", branch, "--", target)) {
		author, subject, _ := strings.Cut(s.git("show", "--no-patch", "--format=%an%x00%s", hash), "\x00")
		files := strings.Split(s.git("diff-tree", "--no-commit-id", "--name-status", "--root", "-r", hash), "\n")
		for i := range files {
			files[i] = strings.ReplaceAll(strings.ReplaceAll(files[i], "\t", " "), target+"/"+s.namespace+"/", "")
		}
		commits = append(commits, commit{author, strings.TrimSpace(subject), files})
	}
	return commits
}

// wantCommit fails unless exactly this commit came after so many.
func (s *shop) wantCommit(target string, after int, want commit) {
	s.t.Helper()
	got := s.commits(target)
	if len(got) != after+1 || got[after].author != want.author || got[after].subject != want.subject || !slices.Equal(got[after].files, want.files) {
		s.t.Errorf("after %d commits: %+v, want %+v", after, got[min(after, len(got)):], want)
	}
}

// content of an object's file; empty when there is none.
func (s *shop) content(target, file string) string {
	content, err := s.repository.Git(s.t.Context(), "show", branch+":"+target+"/"+s.namespace+"/"+file)
	if err != nil {
		return ""
	}
	return content
}

// outlastGrace returns when what was written by now has no author any more who is
// only waited for.
func outlastGrace() { <-time.After(grace + time.Second) }

func (s *shop) reason(rule string) string {
	s.t.Helper()
	r, err := s.kommit.KommitV1alpha1().WatchRules(s.namespace).Get(s.t.Context(), rule, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	ready := apimeta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return ""
	}
	return ready.Reason
}
