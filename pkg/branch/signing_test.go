// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

const passphrase = "s3cret phrase"

// sshKey makes a key at run time, and has the remote's git know it as kommit's.
func (w *world) sshKey(passphrase string) []byte {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "key")
	// A missing ssh-keygen fails the test: git needs it to verify, too.
	out, err := exec.CommandContext(w.ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "test", "-f", file).CombinedOutput() // #nosec G204 -- a passphrase of the test's
	if err != nil {
		w.t.Fatalf("ssh-keygen (apt-get install openssh-client): %v: %s", err, out)
	}
	private, err := os.ReadFile(file) // #nosec G304 -- just made
	if err != nil {
		w.t.Fatal(err)
	}
	public, err := os.ReadFile(file + ".pub") // #nosec G304 -- just made
	if err != nil {
		w.t.Fatal(err)
	}
	signers := file + ".allowed"
	if err := os.WriteFile(signers, []byte("kommit@example.com "+string(public)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := w.repository.Configure(w.ctx, "gpg.ssh.allowedSignersFile", signers); err != nil {
		w.t.Fatal(err)
	}
	return private
}

// askForSignatures has the provider name a Secret for its signing key, and waits
// until that was looked at.
func (w *world) askForSignatures(reason string) {
	w.t.Helper()
	providers := w.client.KommitV1alpha1().GitProviders(namespace)
	provider, err := providers.Get(w.ctx, "git", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	provider.Generation++
	provider.Spec.Commit.Signing = &v1alpha1.SigningOptions{SecretRef: v1alpha1.LocalObjectReference{Name: "signing"}}
	w.must(providers.Update(w.ctx, provider, metav1.UpdateOptions{}))
	w.awaitReason(providers.Watch, reason, func() []metav1.Condition {
		now, err := providers.Get(w.ctx, "git", metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		if now.Status.ObservedGeneration != provider.Generation {
			return nil
		}
		return now.Status.Conditions
	})
}

func (w *world) signingSecret(data map[string][]byte) {
	w.t.Helper()
	w.must(w.cluster.CoreV1().Secrets(namespace).Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "signing"}, Data: data,
	}, metav1.CreateOptions{}))
}

func (w *world) removeSigningSecret() {
	w.t.Helper()
	if err := w.cluster.CoreV1().Secrets(namespace).Delete(w.ctx, "signing", metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// mustVerify has git check the signature of each commit on main.
func (w *world) mustVerify() {
	w.t.Helper()
	w.repository.Must(append([]string{"verify-commit"}, strings.Fields(w.repository.Must("log", "--format=%H", "main"))...)...)
}

func TestSignedCommitsVerify(t *testing.T) {
	w := newWorld(t)
	w.signingSecret(map[string][]byte{"ssh-privatekey": w.sshKey(passphrase), "passphrase": []byte(passphrase)})
	w.askForSignatures(v1alpha1.ReasonReady)
	w.awaitTarget("prod", v1alpha1.ReasonReady)
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonCommitted)
	w.edit("bob", "b", "one")
	w.save("bob", "second", "Two")
	w.await("second", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: One", "bob: Two")
	w.mustVerify()
	if got := w.repository.Must("show", "-s", "--format=%cn <%ce>", "main"); got != "kommit <kommit@example.com>" {
		t.Errorf("the committer is %s", got)
	}
}

// Without its key nothing is committed, nothing unsigned at that, and nothing is
// lost: it is there once the Secret is right.
func TestNothingIsCommittedWithoutTheSigningKey(t *testing.T) {
	for name, secret := range map[string]func(key []byte) map[string][]byte{
		"the Secret is missing": nil,
		"it holds no key":       func([]byte) map[string][]byte { return map[string][]byte{"password": []byte("right")} },
		"the passphrase is wrong": func(key []byte) map[string][]byte {
			return map[string][]byte{"identity": key, "passphrase": []byte("wrong")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			key := w.sshKey(passphrase)
			if secret != nil {
				w.signingSecret(secret(key))
			}
			w.askForSignatures(v1alpha1.ReasonInvalidSecret)
			w.edit("alice", "a", "one")
			w.save("alice", "first", "One")
			request := w.await("first", v1alpha1.ReasonAuthenticationFailed)
			if !apimeta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionStalled) || apimeta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionPushed) {
				t.Errorf("conditions are %+v, want Stalled and not Pushed", request.Status.Conditions)
			}
			message := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionReady).Message
			if !strings.Contains(message, "Secret shop/signing") || strings.Contains(message, passphrase) {
				t.Errorf("message is %q, want the name of the Secret and none of its content", message)
			}
			w.wantSubjects()

			if secret != nil {
				w.removeSigningSecret()
			}
			w.signingSecret(map[string][]byte{"identity": key, "passphrase": []byte(passphrase)})
			w.await("first", v1alpha1.ReasonCommitted)
			w.awaitProvider(v1alpha1.ReasonReady)
			w.wantSubjects("alice: One")
			w.mustVerify()
		})
	}
}

// A key that was read before does not outlive its Secret.
func TestRemovedSigningKeyIsNotUsedAnyMore(t *testing.T) {
	w := newWorld(t)
	key := w.sshKey("")
	w.signingSecret(map[string][]byte{"ssh-privatekey": key})
	w.askForSignatures(v1alpha1.ReasonReady)
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonCommitted)

	w.removeSigningSecret()
	w.edit("alice", "a", "two")
	w.save("alice", "second", "Two")
	w.await("second", v1alpha1.ReasonAuthenticationFailed)
	w.awaitProvider(v1alpha1.ReasonInvalidSecret)
	w.wantSubjects("alice: One")
	w.edit("alice", "b", "one")
	w.save("alice", "third", "Three")
	w.await("third", v1alpha1.ReasonAuthenticationFailed)

	w.signingSecret(map[string][]byte{"ssh-privatekey": key})
	w.await("second", v1alpha1.ReasonCommitted)
	w.await("third", v1alpha1.ReasonCommitted)
	w.awaitProvider(v1alpha1.ReasonReady)
	w.wantSubjects("alice: One", "alice: Two", "alice: Three")
	w.mustVerify()
}

// A repository that cannot be written to is said so before the first save.
func TestSHA256RepositoryIsUnsupported(t *testing.T) {
	w := newWorld(t)
	other := w.server.NewRepository(t, "sha256.git", "--object-format=sha256")
	providers := w.client.KommitV1alpha1().GitProviders(namespace)
	provider, err := providers.Get(w.ctx, "git", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	provider.Generation++
	provider.Spec.URL = other.URL
	w.must(providers.Update(w.ctx, provider, metav1.UpdateOptions{}))
	w.awaitProvider(v1alpha1.ReasonUnsupported)
	provider, err = providers.Get(w.ctx, "git", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready := apimeta.FindStatusCondition(provider.Status.Conditions, v1alpha1.ConditionReady)
	if !apimeta.IsStatusConditionTrue(provider.Status.Conditions, v1alpha1.ConditionStalled) || !strings.Contains(ready.Message, "SHA-256") {
		t.Errorf("conditions are %+v, want Stalled, and what is not supported", provider.Status.Conditions)
	}
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	request := w.await("first", v1alpha1.ReasonRemoteRejected)
	if message := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(message, "SHA-256") {
		t.Errorf("message is %q, want what is not supported", message)
	}
}
