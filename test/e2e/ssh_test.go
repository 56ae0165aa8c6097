// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// secretFrom creates a Secret as its users do.
func (s *shop) secretFrom(name string, files map[string][]byte) {
	s.t.Helper()
	args := []string{"create", "secret", "generic", name}
	for key, content := range files {
		file := filepath.Join(s.t.TempDir(), key)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			s.t.Fatal(err)
		}
		args = append(args, "--from-file="+key+"="+file)
	}
	s.kubectl(controlplane.Admin, args...)
}

// G9, and 4.1: a save over SSH, signed as the committer, with the author's name.
func TestSaveOverSSHSigned(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	server, key := running.Git.NewSSH(t, gitserver.SSHConfig{})
	s.secretFrom("ssh", map[string][]byte{"ssh-privatekey": key, "known_hosts": server.KnownHosts()})
	signer, signing, err := gitserver.NewKey("ed25519", "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	s.secretFrom("signing", map[string][]byte{"identity": signing, "passphrase": []byte("correct horse\n")})
	allowed := filepath.Join(t.TempDir(), "allowed_signers")
	if err := os.WriteFile(allowed, append([]byte("kommit@example.com "), ssh.MarshalAuthorizedKey(signer.PublicKey())...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.repository.Configure(t.Context(), "gpg.ssh.allowedSignersFile", allowed); err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"url":       server.URL(s.repository.Name),
		"secretRef": map[string]any{"name": "ssh"},
		"commit": map[string]any{
			"committer": map[string]any{"name": "kommit", "email": "kommit@example.com"},
			"signing":   map[string]any{"secretRef": map[string]any{"name": "signing"}},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl(controlplane.Admin, "patch", "gitprovider", "git", "--type=merge", "-p", string(patch))
	s.kubectl(controlplane.Admin, "wait", "--for=jsonpath={.status.observedGeneration}=2", "gitprovider/git", "--timeout=60s")
	s.kubectl(controlplane.Admin, "wait", "--for=condition=Ready", "gitprovider/git", "gittarget/"+target, "--timeout=60s")

	s.kubectl("alice", "create", "configmap", "settings", "--from-literal=limit=1")
	s.save("alice", "signed", "Set the limit")
	request := s.waitReady("alice", "signed")
	wantCommitted(t, request)
	if got := s.git("log", "-1", "--format=%an %cn: %s", request.Status.Commit); got != "alice kommit: Set the limit" {
		t.Errorf("committed is %q", got)
	}
	s.git("verify-commit", request.Status.Commit)
	if pushes, err := server.Pushes(); err != nil || pushes == 0 {
		t.Errorf("%d pushes came over SSH, %v", pushes, err)
	}
}
