// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/informers/externalversions"
	"github.com/kommit-dev/kommit/pkg/window"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// Several closed windows of a target that cannot be written to wait together and
// go out in the order in which they closed (W3, W19).
func TestWindowsOfAStalledTargetKeepTheirOrder(t *testing.T) {
	w := newWorld(t)
	w.target("older", "live/shop", time.Unix(500, 0))
	w.awaitTarget("prod", v1alpha1.ReasonPathOverlap)
	for _, round := range []string{"one", "two", "three"} {
		w.edit("alice", "a", round)
		w.save("alice", round, round)
		w.await(round, v1alpha1.ReasonWaitingForPush)
	}
	if err := w.client.KommitV1alpha1().GitTargets(namespace).Delete(w.ctx, "older", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("three", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: one", "alice: two", "alice: three")
}

// A mended GitProvider is used for what was already waiting, not only for what
// comes later.
func TestMendedProviderIsUsedForWaitingWrites(t *testing.T) {
	w := newWorld(t)
	providers := w.client.KommitV1alpha1().GitProviders(namespace)
	change := func(secret string) {
		provider, err := providers.Get(w.ctx, "git", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		provider.Generation++
		provider.Spec.SecretRef.Name = secret
		w.must(providers.Update(w.ctx, provider, metav1.UpdateOptions{}))
	}
	w.must(w.cluster.CoreV1().Secrets(namespace).Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "wrong"},
		Data:       map[string][]byte{"username": []byte("kommit"), "password": []byte("wrong")},
	}, metav1.CreateOptions{}))
	change("wrong")
	w.awaitProvider(v1alpha1.ReasonAuthenticationFailed)
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonAuthenticationFailed)
	change("git")
	w.await("first", v1alpha1.ReasonCommitted)
	w.awaitProvider(v1alpha1.ReasonReady)
	w.wantSubjects("alice: One")
}

// Over SSH the Secret says who the host is too: what it lacks is named on the
// provider, and adding it is enough.
func TestMendedKnownHostsIsUsedForWaitingWrites(t *testing.T) {
	w := newWorld(t)
	h, key := w.server.NewSSH(t, gitserver.SSHConfig{})
	secrets := w.cluster.CoreV1().Secrets(namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ssh"}, Data: map[string][]byte{"ssh-privatekey": key}}
	w.must(secrets.Create(w.ctx, secret, metav1.CreateOptions{}))
	providers := w.client.KommitV1alpha1().GitProviders(namespace)
	change := func() {
		provider, err := providers.Get(w.ctx, "git", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		provider.Generation++
		provider.Spec.URL, provider.Spec.SecretRef.Name = h.URL(w.repository.Name), "ssh"
		w.must(providers.Update(w.ctx, provider, metav1.UpdateOptions{}))
	}
	change()
	w.awaitProvider(v1alpha1.ReasonInvalidSecret) // no known_hosts
	secret.Data["known_hosts"] = []byte("example.com " + string(ssh.MarshalAuthorizedKey(h.HostKeys()[0])))
	w.must(secrets.Update(w.ctx, secret, metav1.UpdateOptions{}))
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	refused := w.await("first", v1alpha1.ReasonAuthenticationFailed)
	if fingerprint := ssh.FingerprintSHA256(h.HostKeys()[0]); !strings.Contains(fmt.Sprint(refused.Status.Conditions), fingerprint) {
		t.Errorf("conditions %v do not name the host key %s", refused.Status.Conditions, fingerprint)
	}
	secret.Data["known_hosts"] = h.KnownHosts()
	w.must(secrets.Update(w.ctx, secret, metav1.UpdateOptions{}))
	change()
	w.await("first", v1alpha1.ReasonCommitted)
	w.awaitProvider(v1alpha1.ReasonReady)
	w.wantSubjects("alice: One")
}

// A later save that finds its state in Git still overtakes an earlier one that
// was refused: offered again, that one must not turn it back.
func TestAlreadyPresentSupersedesWhatWasRefused(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonCommitted)
	w.repository.MustHook("pre-receive", rejectBad)
	w.edit("alice", "a", "two")
	w.save("alice", "refused", "Bad")
	w.await("refused", v1alpha1.ReasonRemoteRejected)
	w.edit("alice", "a", "one")
	w.save("alice", "back", "Back")
	w.await("back", v1alpha1.ReasonAlreadyPresent)

	w.repository.MustHook("pre-receive", "#!/bin/sh\nexit 0\n")
	w.touchTarget("prod")
	w.await("refused", v1alpha1.ReasonAlreadyPresent)
	w.wantSubjects("alice: One")
}

// C14: a file that cannot be edited is named and left as it is; it does not keep
// back the other objects of the save.
func TestC14OneRefusedFileKeepsNobodyBack(t *testing.T) {
	w := newWorld(t)
	template := "# {{ .Values.x }}\nkind: {{ .Kind }}\n"
	w.repository.MustCommit("main", map[string]string{"live/shop/configmaps/a.yaml": template})
	w.edit("alice", "a", "one")
	w.edit("alice", "b", "one")
	w.save("alice", "first", "One")
	request := w.await("first", v1alpha1.ReasonCommitted)
	ready := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionReady)
	if !strings.Contains(ready.Message, "live/shop/configmaps/a.yaml") {
		t.Errorf("message is %q, want the file that was not saved", ready.Message)
	}
	if got := w.repository.MustShow("main", "live/shop/configmaps/a.yaml"); got != template {
		t.Errorf("the template is now %q", got)
	}
	if got, want := w.repository.MustShow("main", "live/shop/configmaps/b.yaml"), manifestOf("b", "one"); got != want {
		t.Errorf("b is %q, want %q", got, want)
	}

	w.edit("alice", "a", "two")
	w.save("alice", "second", "Only the template")
	failed := w.await("second", v1alpha1.ReasonCommitFailed)
	if ready := apimeta.FindStatusCondition(failed.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, "live/shop/configmaps/a.yaml") {
		t.Errorf("message is %q, want the file", ready.Message)
	}
}

// C14: deleting an object does not take what else its file holds.
func TestC14DeletionLeavesNeighbours(t *testing.T) {
	w := newWorld(t)
	two := manifestOf("a", "one") + "---\n" + manifestOf("z", "one")
	w.repository.MustCommit("main", map[string]string{
		"live/shop/configmaps/a.yaml": two,
		"live/shop/configmaps/b.yaml": manifestOf("b", "one"),
	})
	for _, name := range []string{"a", "b"} {
		w.change(window.Change{
			Target: prod, Object: window.Object{Resource: "configmaps", Namespace: namespace, Name: name},
			Author: window.Author{Username: "alice"}, Operation: window.Delete,
		})
	}
	w.save("alice", "first", "Remove both")
	w.await("first", v1alpha1.ReasonCommitted)
	if got, want := w.repository.MustShow("main", "live/shop/configmaps/a.yaml"), manifestOf("z", "one"); got != want {
		t.Errorf("the file with a neighbour is %q, want %q", got, want)
	}
	if files := w.repository.Must("ls-tree", "-r", "--name-only", "main"); files != "live/shop/configmaps/a.yaml" {
		t.Errorf("files are %q", files)
	}
}

// W18: a suspended target commits nothing, not even what was closed before.
func TestW18SuspendedWhileWaitingForThePush(t *testing.T) {
	w := newWorld(t)
	if err := w.server.Down(); err != nil {
		t.Fatal(err)
	}
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonWaitingForPush)
	w.suspend()
	w.await("first", v1alpha1.ReasonTargetSuspended)
	w.edit("alice", "b", "one")
	if name := <-w.recompared; name != prod {
		t.Errorf("%s is compared with Git on resume, want %s", name, prod)
	}
	if err := w.server.Up(w.ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.pool.Shutdown(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.wantSubjects()
}

// At shutdown the last statuses are stored too, and what comes after is left to
// the next process.
func TestShutdownStoresTheStatuses(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	request := w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonCommitted)
	w.edit("alice", "a", "two")
	if err := w.pool.Shutdown(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.wantSubjects("alice: One", "alice: Update configmaps/a in shop")
	w.edit("alice", "a", "three")
	request.Name, request.UID = "late", "late"
	w.must(w.client.KommitV1alpha1().CommitRequests(namespace).Create(w.ctx, request, metav1.CreateOptions{}))
	if err := w.pool.Shutdown(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.wantSubjects("alice: One", "alice: Update configmaps/a in shop")
}

// A request whose window died with its process is not told that nothing was
// changed.
func TestInterruptedRequestSaysSo(t *testing.T) {
	w := newWorld(t)
	if err := w.server.Down(); err != nil {
		t.Fatal(err)
	}
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonWaitingForPush)

	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	factory := externalversions.NewSharedInformerFactory(w.client, 0)
	config := w.pool.config
	config.Informers = factory.Kommit().V1alpha1()
	if err := NewPool(0, newJournal(t)).Start(ctx, config); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	w.await("first", v1alpha1.ReasonCommitFailed)
	w.wantSubjects()
}

func TestShutdownBeforeStart(t *testing.T) {
	if err := NewPool(0, newJournal(t)).Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// A name that would collide with a neighbour's on some disks is left out and named;
// the other objects of the save are committed.
func TestCollisionKeepsNobodyBack(t *testing.T) {
	w := newWorld(t)
	w.repository.MustCommit("main", map[string]string{"live/shop/configmaps/A.yaml": manifestOf("A", "one")})
	w.edit("alice", "a", "one")
	w.edit("alice", "b", "one")
	w.save("alice", "first", "One")
	request := w.await("first", v1alpha1.ReasonCommitted)
	if ready := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, "live/shop/configmaps/a.yaml") {
		t.Errorf("message is %q, want the file that was not saved", ready.Message)
	}
	if files := w.repository.Must("ls-tree", "-r", "--name-only", "main"); files != "live/shop/configmaps/A.yaml\nlive/shop/configmaps/b.yaml" {
		t.Errorf("files are %q", files)
	}
}

// What is left when a target is deleted goes where the target was last, and to no
// place that it had before.
func TestDeletedTargetIsFlushed(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	w.awaitTarget("prod", v1alpha1.ReasonReady)
	if err := w.client.KommitV1alpha1().GitTargets(namespace).Delete(w.ctx, "prod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitPush()
	w.wantSubjects("alice: Update configmaps/a in shop")
}
