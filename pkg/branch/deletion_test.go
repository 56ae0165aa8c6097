// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned/fake"
)

// deleteTarget does what the server does to an object with finalizers.
func (w *world) deleteTarget(name string) {
	w.t.Helper()
	targets := w.client.KommitV1alpha1().GitTargets(namespace)
	w.awaitGitTarget(name, func(t *v1alpha1.GitTarget) bool {
		return t != nil && slices.Contains(t.Finalizers, v1alpha1.FlushFinalizer)
	})
	target, err := targets.Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	now := metav1.Now()
	target.DeletionTimestamp = &now
	w.must(targets.Update(w.ctx, target, metav1.UpdateOptions{}))
}

// awaitGitTarget waits until the target is as asked; nil when it is gone.
func (w *world) awaitGitTarget(name string, is func(*v1alpha1.GitTarget) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	targets := w.client.KommitV1alpha1().GitTargets(namespace)
	events, err := targets.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer events.Stop()
	last, err := targets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		last = nil
	} else if err != nil {
		w.t.Fatal(err)
	}
	for !is(last) {
		select {
		case e := <-events.ResultChan():
			if next, ok := e.Object.(*v1alpha1.GitTarget); ok && next.Name == name {
				if last = next; e.Type == watch.Deleted {
					last = nil
				}
			}
		case <-ctx.Done():
			w.t.Fatalf("GitTarget %s is %+v", name, last)
		}
	}
}

// released says that the target was let go of. The tracker keeps what the server
// would delete by then.
func released(t *v1alpha1.GitTarget) bool {
	return t == nil || !slices.Contains(t.Finalizers, v1alpha1.FlushFinalizer)
}

func (w *world) finalizers(name string) []string {
	w.t.Helper()
	target, err := w.client.KommitV1alpha1().GitTargets(namespace).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return target.Finalizers
}

// Windows close, pushes happen, requests resolve, then the target goes.
func TestDeletedTargetIsFlushedFirst(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	w.edit("bob", "b", "one")
	w.deleteTarget("prod")
	w.awaitGitTarget("prod", released)
	w.wantSubjects("alice: Update configmaps/a in shop", "bob: Update configmaps/b in shop")
	// Nothing comes in any more.
	w.edit("alice", "c", "one")
	w.save("alice", "late", "Late")
	w.await("late", v1alpha1.ReasonTargetDeleted)
	if open, _ := w.pool.Windows(""); len(open) != 0 {
		t.Errorf("open are %+v", open)
	}
}

// 5.5: an edit that was made before the deletion and arrives after it is saved; only
// then the windows close.
func TestDeletedTargetIsCaughtUpWith(t *testing.T) {
	w := newWorld(t)
	w.proving = make(chan struct{})
	w.edit("alice", "a", "one")
	w.deleteTarget("prod")
	w.awaitGitTarget("prod", func(t *v1alpha1.GitTarget) bool { return t.DeletionTimestamp != nil })
	w.edit("alice", "b", "one")
	close(w.proving)
	w.awaitGitTarget("prod", released)
	w.wantSubjects("alice: Update 2 configmaps in shop")
}

func TestDeletedTargetSaysWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	w.repository.MustHook("pre-receive", "#!/bin/sh\necho 'policy: closed' >&2\nexit 1\n")
	w.edit("alice", "a", "one")
	w.deleteTarget("prod")
	w.awaitGitTarget("prod", func(t *v1alpha1.GitTarget) bool {
		ready := apimeta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Reason == v1alpha1.ReasonFlushing
	})
	if got := w.finalizers("prod"); !slices.Contains(got, v1alpha1.FlushFinalizer) {
		t.Errorf("finalizers are %q while the remote refuses", got)
	}
	w.repository.MustHook("pre-receive", "#!/bin/sh\nexit 0\n")
	w.touchProvider()
	w.awaitGitTarget("prod", released)
	w.wantSubjects("alice: Update configmaps/a in shop")
}

// A namespace goes in any order. What has nowhere to go holds up nothing, and its
// request says so.
func TestDeletedTargetWithoutAProviderOrItsSecret(t *testing.T) {
	for name, remove := range map[string]func(*world) error{
		"its Secret is gone": func(w *world) error {
			return w.cluster.CoreV1().Secrets(namespace).Delete(w.ctx, "git", metav1.DeleteOptions{})
		},
		"both are gone": func(w *world) error {
			if err := w.cluster.CoreV1().Secrets(namespace).Delete(w.ctx, "git", metav1.DeleteOptions{}); err != nil {
				return err
			}
			return w.client.KommitV1alpha1().GitProviders(namespace).Delete(w.ctx, "git", metav1.DeleteOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server.SetPassword("changed")
			w.edit("alice", "a", "one")
			w.save("alice", "first", "One")
			w.await("first", v1alpha1.ReasonAuthenticationFailed)
			if err := remove(w); err != nil {
				t.Fatal(err)
			}
			w.deleteTarget("prod")
			w.await("first", v1alpha1.ReasonTargetDeleted)
			w.awaitGitTarget("prod", released)
			w.wantSubjects()
		})
	}
}

// Suspending it is how what cannot be pushed is given up.
func TestDeletedTargetThatIsSuspendedGivesUp(t *testing.T) {
	w := newWorld(t)
	w.repository.MustHook("pre-receive", "#!/bin/sh\nexit 1\n")
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonRemoteRejected)
	w.deleteTarget("prod")
	w.suspend()
	w.await("first", v1alpha1.ReasonTargetSuspended)
	w.awaitGitTarget("prod", released)
	w.wantSubjects()
}

// touchProvider bumps the generation as a spec change does.
func (w *world) touchProvider() {
	w.t.Helper()
	providers := w.client.KommitV1alpha1().GitProviders(namespace)
	provider, err := providers.Get(w.ctx, "git", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	provider.Generation++
	w.must(providers.Update(w.ctx, provider, metav1.UpdateOptions{}))
}

// The informer's store knows of a deletion before those whom it tells: a look at
// that moment must not let go of a target whose windows are open.
func TestDeletedTargetIsKeptWhileItsWindowsAreOpen(t *testing.T) {
	p, _ := collecting(t)
	p.config.Retry = func(types.NamespacedName) {}
	now := metav1.Now()
	target, err := p.destinations.targets.Get(prod)
	if err != nil {
		t.Fatal(err)
	}
	p.targets[prod] = target.DeepCopy()
	target.Finalizers, target.DeletionTimestamp = []string{v1alpha1.FlushFinalizer}, &now
	client := fake.NewClientset(target)
	p.readiness.client, p.readiness.flushOf = client.KommitV1alpha1(), p.flushOf

	for _, test := range []struct {
		name string
		do   func()
		kept bool
	}{
		{"before the pool has seen it", func() {}, true},
		{"when the pool has seen it", func() { p.targetSet(target) }, false},
	} {
		test.do()
		if err := p.readiness.updateTarget(t.Context(), prod); err != nil {
			t.Fatal(err)
		}
		stored, err := client.KommitV1alpha1().GitTargets(namespace).Get(t.Context(), "prod", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if kept := slices.Contains(stored.Finalizers, v1alpha1.FlushFinalizer); kept != test.kept {
			t.Errorf("%s: kept is %t, want %t", test.name, kept, test.kept)
		}
	}
}
