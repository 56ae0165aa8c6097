// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/stack"
)

// gracePeriod is what artifacts/deploy gives a pod before it is killed.
const gracePeriod = time.Minute

// holdPushes keeps pushes to the repository waiting, as a slow remote does, until
// release.
func (s *shop) holdPushes() (release func()) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "pushes")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		s.t.Fatal(err)
	}
	pipe, err := os.OpenFile(file, os.O_RDWR, 0) // for both, else this waits for the other side
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = pipe.Close() })
	if err := s.repository.InstallHook("pre-receive", fmt.Sprintf("read -r line <'%s'\n", file)); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		if err := s.repository.InstallHook("pre-receive", ""); err != nil {
			s.t.Error(err)
		}
		if _, err := pipe.WriteString(strings.Repeat("go\n", 64)); err != nil { // one for each that waits
			s.t.Error(err)
		}
	}
}

// aliceCollects has her edit an object of that name, and save to a window that only
// a stop closes soon.
func (s *shop) aliceCollects(name, request, message string) {
	s.t.Helper()
	events, err := s.client().KommitV1alpha1().CommitWindows(s.namespace).Watch(s.t.Context(), metav1.ListOptions{FieldSelector: v1alpha1.CommitWindowAuthorField + "=alice"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer events.Stop()
	s.kubectl("alice", "create", "configmap", name, "--from-literal=apple=1")
	s.windowNews(events, func(kind watch.EventType, _ *v1alpha1.CommitWindow) bool { return kind == watch.Added })
	s.save("alice", request, message, "--max-duration=5m")
	s.windowNews(events, func(_ watch.EventType, w *v1alpha1.CommitWindow) bool {
		return w.Status.CommitRequestRef != nil && w.Status.CommitRequestRef.Name == request
	})
}

// terminate tells kommit-apiserver to stop, as the kubelet does. ended waits for its
// end, which has to be a good one and within the grace period.
func (s *shop) terminate() (ended func()) {
	s.t.Helper()
	process := running.ControlPlane.Process(stack.ServerProcess)
	ctx, cancel := context.WithTimeout(s.t.Context(), gracePeriod)
	s.t.Cleanup(func() {
		cancel()
		process.Kill()
		if running.ControlPlane.Process(stack.ServerProcess) == nil { // the test failed before it
			s.restart()
		}
	})
	if err := running.ControlPlane.TerminateProcess(process); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		if err := process.Wait(ctx); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *shop) restart() {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context()) // it is everybody's
	if err := running.StartServer(ctx); err != nil {
		s.t.Fatal(err)
	}
	if _, _, err := running.ControlPlane.Kubectl(ctx, controlplane.Admin, "wait", "--for=condition=Available", "apiservice/v1alpha1.kommit.dev", "--timeout=60s"); err != nil {
		s.t.Fatal(err)
	}
}

// untilNotReady asks /readyz until it says no.
func (s *shop) untilNotReady() {
	s.t.Helper()
	for {
		err := running.Extension.Ready(s.t.Context())
		if err == nil {
			continue
		}
		var status *controlplane.StatusError
		if !errors.As(err, &status) || status.Code != http.StatusInternalServerError {
			s.t.Fatalf("/readyz: %v, want it to fail with 500", err)
		}
		return
	}
}

// wantAlices checks that a request was made one commit, hers, of these files.
func (s *shop) wantAlices(request *v1alpha1.CommitRequest, message string, files ...string) {
	s.t.Helper()
	wantCommitted(s.t, request)
	found := slices.DeleteFunc(by("alice", s.commits()), func(c commit) bool { return c.message != message })
	if len(found) != 1 || found[0].hash != request.Status.Commit || !slices.Equal(found[0].files, files) {
		s.t.Errorf("alice's commits %q are %+v, want one of %v: %s", message, found, files, request.Status.Commit)
	}
}

// DESIGN 8: a server that is told to stop is not ready and takes no new saves, goes on
// with all else until its windows are pushed and their requests told, and ends well.
func TestGracefulStop(t *testing.T) {
	s := newShop(t) // not parallel: the server is everybody's
	requests := s.client().KommitV1alpha1().CommitRequests(s.namespace)
	s.aliceCollects("prices", "held", "Prices")
	s.save("bob", "patient", "Fruit", "--attach-timeout=5m")
	list, err := requests.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := requests.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	release := s.holdPushes() // so that all below comes before the windows are flushed

	ended := s.terminate()
	s.untilNotReady()
	for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
		late := &v1alpha1.CommitRequest{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: v1alpha1.CommitRequestSpec{GitTargetRef: v1alpha1.LocalObjectReference{Name: target}}}
		for resource, path := range map[string][]string{"commitrequests": nil, "gittargets": {target, "commits"}} {
			// Without the retries that Retry-After is for.
			post := s.as("bob").KommitV1alpha1().RESTClient().Post().MaxRetries(0).Namespace(s.namespace).Resource(resource)
			if path != nil {
				post = post.Name(path[0]).SubResource(path[1])
			}
			for _, value := range dryRun {
				post = post.Param("dryRun", value)
			}
			err := post.Body(late).Do(t.Context()).Error()
			if seconds, said := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !said || seconds <= 0 {
				t.Errorf("a save by %s, dry run %v: %v (again after %d s), want 503 with Retry-After", resource, dryRun, err, seconds)
			}
		}
	}
	s.kubectl("alice", "create", "configmap", "meanwhile", "--from-literal=pear=1") // her audit event is taken, or comes again
	if list, err = requests.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
		t.Errorf("there are %+v, %v, want the two that were there", list, err)
	}

	release()
	told := false
	for event := range events.ResultChan() {
		if request, ok := event.Object.(*v1alpha1.CommitRequest); !ok {
			t.Errorf("the watch ended with %+v", event.Object)
		} else if request.Name == "held" {
			told = told || apimeta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionReady)
		} else if request.Name != "patient" {
			t.Errorf("the watch saw %s %s", event.Type, request.Name)
		}
	}
	if !told {
		t.Error("the watch ended without the end of alice's request")
	}
	ended()
	if mine := by("alice", s.commits()); len(mine) == 0 || mine[0].message != "Prices" || !slices.Contains(mine[0].files, s.path("configmaps", "prices")) {
		t.Errorf("alice's commits are %+v when the server has ended, want her window first", mine)
	}

	s.restart()
	held := s.request("held")
	wantCommitted(t, held)
	if mine := by("alice", s.commits()); len(mine) == 0 || mine[0].hash != held.Status.Commit {
		t.Errorf("alice's commits are %+v, her request says %s", mine, held.Status.Commit)
	}
	if ready := apimeta.FindStatusCondition(s.request("patient").Status.Conditions, v1alpha1.ConditionReady); ready.Reason != v1alpha1.ReasonWaitingForWindow {
		t.Errorf("bob's request is %s: %s, want it to wait still", ready.Reason, ready.Message)
	}
	s.kubectl("bob", "create", "configmap", "fruit", "--from-literal=plum=1")
	patient := s.waitReady("bob", "patient")
	wantCommitted(t, patient)
	if bobs := by("bob", s.commits()); len(bobs) != 1 || bobs[0].hash != patient.Status.Commit || bobs[0].message != "Fruit" {
		t.Errorf("bob's commits are %+v, want one for his request", bobs)
	}
	if _, err := requests.Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a refused save was left behind: %v", err)
	}
	s.wantMeanwhile(held)
}

// wantMeanwhile checks that what alice made while the server stopped is saved once,
// as hers: with the window that was open, or later.
func (s *shop) wantMeanwhile(held *v1alpha1.CommitRequest) {
	s.t.Helper()
	path := s.path("configmaps", "meanwhile")
	holds := func(c commit) bool { return slices.Contains(c.files, path) }
	if !slices.ContainsFunc(s.commits(), holds) {
		s.save("alice", "after", "Pears", "--attach-timeout=1m")
		after := s.waitReady("alice", "after")
		s.wantAlices(after, "Pears", path)
	}
	for _, c := range s.commits() {
		if holds(c) && c.author != "alice" {
			s.t.Errorf("what alice made during the stop is in %+v (her window is in %s)", c, held.Status.Commit)
		}
	}
}

// D2: what cannot be pushed while the server stops is pushed by the next one, with its
// author and message, and holds up the end of the process no longer than it may.
func TestStopWithTheRemoteDown(t *testing.T) {
	s := newShop(t) // not parallel: the servers are everybody's
	s.aliceCollects("prices", "held", "Prices")
	before := len(s.commits())
	if err := running.Git.Down(); err != nil {
		t.Fatal(err)
	}
	up := sync.OnceFunc(func() {
		if err := running.Git.Up(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	defer up()
	s.terminate()()
	up()
	if now := len(s.commits()); now != before {
		t.Errorf("%d commits, there were %d before the remote was down", now, before)
	}
	s.restart()
	s.wantAlices(s.waitReady("alice", "held"), "Prices", s.path("configmaps", "prices"))
}
