// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package catchingup

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/stack"
	"github.com/kommit-dev/kommit/test/stack/stacktest"
)

const (
	rounds    = 100
	savers    = 4
	target    = "prod"
	branch    = "main"
	namespace = "shop"
)

// world is everything, with the way of the audit events under control.
type world struct {
	stack *stack.Stack
	gate  *gate
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{}
	t.Cleanup(func() { // after the stack
		if w.gate == nil {
			return
		}
		if err := w.gate.close(); err != nil {
			t.Error(err)
		}
	})
	w.stack = stacktest.Start(t, stack.Config{
		// Batches, as kube-apiserver sends them by default, but for the wait of 30 s.
		AuditFlags: []string{"--audit-webhook-mode=batch", "--audit-webhook-batch-max-wait=1s"},
		ServerArgs: []string{"--catch-up-timeout=10s"},
		AuditThrough: func(server string) (string, error) {
			var err error
			if w.gate, err = newGate(server); err != nil {
				return "", err
			}
			return w.gate.address(), nil
		},
	})
	t.Cleanup(func() { w.gate.set(false) })
	users := make([]string, savers)
	for i := range users {
		users[i] = fmt.Sprintf("saver-%d", i)
	}
	if err := w.stack.SetUpShop(t.Context(), stack.Shop{Namespace: namespace, Target: target, Branch: branch, Repository: namespace, Users: users}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) kubectl(ctx context.Context, user, stdin string, args ...string) error {
	_, _, err := w.stack.ControlPlane.KubectlInput(ctx, user, strings.NewReader(stdin), append(args, "--namespace="+namespace)...)
	return err
}

func (w *world) git(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.stack.Git.Repository(namespace).Git(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// edit and save at once, as a script does: nothing waits for the audit event.
func (w *world) editAndSave(ctx context.Context, user, object, request, value string) error {
	manifest := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n", object, value)
	if err := w.kubectl(ctx, user, manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	return w.kubectl(ctx, user, "", "create", "commitrequest", request, "--target", target, "-m", value, "--max-duration=0s")
}

func (w *world) request(t *testing.T, name string) *v1alpha1.CommitRequest {
	t.Helper()
	config, err := w.stack.ControlPlane.RESTConfig(controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	request, err := versioned.NewForConfigOrDie(config).KommitV1alpha1().CommitRequests(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// DESIGN 5.5: of 100 saves right behind their edit, 100 hold it, under its author.
func TestSavesHoldWhatCameBeforeThem(t *testing.T) {
	w := start(t)
	t.Run("100 rounds", w.everyRound)
	t.Run("with the receiver paused", w.paused)
}

func (w *world) everyRound(t *testing.T) {
	var running sync.WaitGroup
	for i := range savers {
		user := fmt.Sprintf("saver-%d", i)
		running.Go(func() {
			for round := i; round < rounds; round += savers {
				name := fmt.Sprintf("round-%d", round)
				if err := w.editAndSave(t.Context(), user, user, name, name); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if err := w.kubectl(t.Context(), user, "", "wait", "--for=condition=Ready", "commitrequest/"+name, "--timeout=60s"); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	running.Wait()
	hold := 0
	for round := range rounds {
		name, user := fmt.Sprintf("round-%d", round), fmt.Sprintf("saver-%d", round%savers)
		request := w.request(t, name)
		if request.Status.Commit == "" {
			t.Errorf("%s has no commit: %+v", name, request.Status.Conditions)
			continue
		}
		if caughtUp := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionCaughtUp); caughtUp == nil || caughtUp.Status != metav1.ConditionTrue {
			t.Errorf("%s: CaughtUp is %+v, want True", name, caughtUp)
		}
		got := w.git(t, "show", "--no-patch", "--format=%an: %s", request.Status.Commit)
		files := w.git(t, "diff-tree", "--no-commit-id", "--name-only", "--root", "-r", request.Status.Commit)
		content := w.git(t, "show", request.Status.Commit+":"+namespace+"/configmaps/"+user+".yaml")
		switch {
		case got != user+": "+name:
			t.Errorf("%s is %q, want %q", name, got, user+": "+name)
		case files != namespace+"/configmaps/"+user+".yaml":
			t.Errorf("%s has the files %q", name, files)
		case !strings.HasSuffix(content, "value: "+name):
			t.Errorf("%s does not hold its edit:\n%s", name, content)
		default:
			hold++
		}
	}
	t.Logf("%d of %d saves hold their edit", hold, rounds)
	// Nobody else has a part in it but who set up the namespace.
	for line := range strings.Lines(w.git(t, "log", "--format=%an %s", branch)) {
		if author, _, _ := strings.Cut(line, " "); !strings.HasPrefix(author, "saver-") && strings.Contains(line, "saver-") {
			t.Errorf("a saver's object is in a commit by another: %s", line)
		}
	}
	w.git(t, "fsck", "--strict", "--no-dangling")
}

// A save whose proof cannot succeed waits its bound, then says which resource
// lagged.
func (w *world) paused(t *testing.T) {
	w.gate.set(true)
	began := time.Now()
	if err := w.editAndSave(t.Context(), "saver-0", "paused", "paused", "paused"); err != nil {
		t.Fatal(err)
	}
	if err := w.kubectl(t.Context(), "saver-0", "", "wait", "--for=condition=Ready", "commitrequest/paused", "--timeout=60s"); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(began); waited < 10*time.Second {
		t.Errorf("it waited %s, less than its bound of 10s", waited)
	}
	request := w.request(t, "paused")
	caughtUp := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionCaughtUp)
	if caughtUp == nil || caughtUp.Status != metav1.ConditionFalse || caughtUp.Reason != v1alpha1.ReasonCatchUpTimeout || !strings.Contains(caughtUp.Message, "configmaps") {
		t.Errorf("CaughtUp is %+v, want False that names configmaps", caughtUp)
	}
	if ready := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != v1alpha1.ReasonNoOpenWindow {
		t.Errorf("Ready is %+v, want NoOpenWindow: the edit had no author yet", ready)
	}

	// What was missed is in the next save, under its author, once it is sure that no
	// other claim on it is as late as this one was.
	w.gate.set(false)
	if err := w.kubectl(t.Context(), "saver-0", "", "create", "commitrequest", "resumed", "--target", target, "-m", "resumed", "--max-duration=0s", "--attach-timeout=1m"); err != nil {
		t.Fatal(err)
	}
	if err := w.kubectl(t.Context(), "saver-0", "", "wait", "--for=condition=Pushed", "commitrequest/resumed", "--timeout=60s"); err != nil {
		t.Fatal(err)
	}
	commit := w.request(t, "resumed").Status.Commit
	if got, want := w.git(t, "show", "--no-patch", "--format=%an", commit), "saver-0"; got != want {
		t.Errorf("what was missed is by %q, want %q", got, want)
	}
	if files := w.git(t, "diff-tree", "--no-commit-id", "--name-only", "-r", commit); files != namespace+"/configmaps/paused.yaml" {
		t.Errorf("the next save has the files %q", files)
	}
}
