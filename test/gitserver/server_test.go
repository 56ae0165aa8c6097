// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitserver_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kommit-dev/kommit/test/gitserver"
)

// client runs the real git command as a user would.
func client(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=u", "-c", "user.email=u@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestServesRealClients(t *testing.T) {
	s := gitserver.New(t, gitserver.Config{Username: "robot", Password: "pw"})
	r := s.NewRepository(t, "team/repo.git")
	url := strings.Replace(r.URL, "://", "://robot:pw@", 1)

	foreign := r.MustCommit("main", map[string]string{"a/b c.txt": "1\n", "no line break": "x"})
	dir := filepath.Join(t.TempDir(), "clone")
	if out, err := client(t, t.TempDir(), "clone", "-q", url, dir); err != nil {
		t.Fatalf("clone: %v\n%s", err, out)
	}
	if got := r.MustShow(foreign, "no line break") + r.MustShow("main", "a/b c.txt"); got != "x1\n" {
		t.Errorf("content %q", got)
	}
	if out, err := client(t, t.TempDir(), "ls-remote", r.URL); err == nil {
		t.Errorf("anonymous access: %s", out)
	}

	r.MustHook("pre-receive", "echo told you >&2; exit 1")
	if out, err := client(t, dir, "commit", "-q", "--allow-empty", "-m", "x"); err != nil {
		t.Fatalf("commit: %v\n%s", err, out)
	}
	out, err := client(t, dir, "push", "-q", "origin", "main")
	if err == nil || !strings.Contains(out, "told you") {
		t.Errorf("refused push: %v\n%s", err, out)
	}
	r.MustHook("pre-receive", "")

	if err := s.Down(); err != nil {
		t.Fatal(err)
	}
	if out, err := client(t, dir, "push", "-q", "origin", "main"); err == nil {
		t.Errorf("push to a server that is down: %s", out)
	}
	if err := s.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := client(t, dir, "push", "-q", "origin", "main"); err != nil {
		t.Fatalf("push after the return: %v\n%s", err, out)
	}
	log, err := r.Log(t.Context(), "main", "--format=%s")
	if err != nil || log != "x\nforeign" {
		t.Errorf("log %q, %v", log, err)
	}
	files, err := r.Files(t.Context(), "main")
	if err != nil || strings.Join(files, ",") != "a/b c.txt,no line break" {
		t.Errorf("files %q, %v", files, err)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := gitserver.Start(ctx, gitserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := client(t, t.TempDir(), "ls-remote", s.URL()+"/x"); err == nil {
		t.Error("still served")
	}
}
