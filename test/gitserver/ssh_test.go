// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitserver_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kommit-dev/kommit/test/gitserver"
)

// sshClient is the real git with the real ssh, which know nothing but these files.
func sshClient(t *testing.T, h *gitserver.SSHServer, key []byte) func(args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	identity, hosts := filepath.Join(dir, "id"), filepath.Join(dir, "known_hosts")
	for file, content := range map[string][]byte{identity: key, hosts: h.KnownHosts()} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := "ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -i " + identity + " -o UserKnownHostsFile=" + hosts
	return func(args ...string) (string, error) {
		return client(t, dir, append([]string{"-c", "core.sshCommand=" + command}, args...)...)
	}
}

func TestServesRealSSHClients(t *testing.T) {
	s := gitserver.New(t, gitserver.Config{})
	h, key := s.NewSSH(t, gitserver.SSHConfig{HostKeyTypes: []string{"rsa", "ecdsa", "ed25519"}})
	r := s.NewRepository(t, "team/repo.git")
	r.MustCommit("main", map[string]string{"a": "1\n"})
	git := sshClient(t, h, key)
	if out, err := git("clone", "-q", h.URL("team/repo.git"), "clone"); err != nil {
		log, _ := h.Log()
		t.Fatalf("clone: %v\n%s\nsshd says:\n%s", err, out, log)
	}
	if out, err := git("-C", "clone", "commit", "-q", "--allow-empty", "-m", "x"); err != nil {
		t.Fatalf("commit: %v\n%s", err, out)
	}
	r.MustHook("pre-receive", "echo told you >&2; exit 1")
	if out, err := git("-C", "clone", "push", "-q", "origin", "main"); err == nil || !strings.Contains(out, "told you") {
		t.Errorf("refused push: %v\n%s", err, out)
	}
	r.MustHook("pre-receive", "")
	if out, err := git("-C", "clone", "push", "-q", "origin", "main"); err != nil {
		t.Errorf("push: %v\n%s", err, out)
	}
	if n, err := h.Pushes(); err != nil || n != 2 {
		t.Errorf("%d pushes, %v, want 2", n, err)
	}
	commands, err := h.Commands()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"git-upload-pack '" + r.Dir + "'", "git-receive-pack '" + r.Dir + "'", "git-receive-pack '" + r.Dir + "'"}, commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}

	if err := h.Down(); err != nil {
		t.Fatal(err)
	}
	if out, err := git("ls-remote", h.URL("team/repo.git")); err == nil {
		t.Errorf("served while down: %s", out)
	}
	if err := h.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := git("ls-remote", h.URL("team/repo.git")); err != nil {
		t.Errorf("not served after the return: %v\n%s", err, out)
	}
}

func TestSSHServesGitAloneAndKnownKeysAlone(t *testing.T) {
	s := gitserver.New(t, gitserver.Config{})
	h, key := s.NewSSH(t, gitserver.SSHConfig{})
	s.NewRepository(t, "repo.git")
	_, other, err := gitserver.NewKey("ed25519", "")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := sshClient(t, h, other)("ls-remote", h.URL("repo.git")); err == nil {
		t.Errorf("a key that is not authorized may log in: %s", out)
	}
	if out, err := sshClient(t, h, key)("ls-remote", "--upload-pack=touch pwned; git-upload-pack", h.URL("repo.git")); err == nil {
		t.Errorf("another command than git's may run: %s", out)
	}
	entries, err := os.ReadDir(filepath.Dir(s.Repository("x").Dir))
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "pwned" }) {
		t.Error("another command than git's was run")
	}
}
