// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// fixture is one repository on a real server, and ours that writes to it.
type fixture struct {
	*gitserver.TestRepository
	server *gitserver.Server
	repo   *git.Repository

	// ssh is set when the repository is reached over SSH, with secret.
	ssh    *gitserver.SSHServer
	secret map[string][]byte
	seen   int // pushes over SSH that were counted already
}

// transportVariable, set to ssh, makes setup choose SSH instead of HTTP.
const transportVariable = "KOMMIT_TEST_GIT_TRANSPORT"

func setup(t *testing.T, args ...string) *fixture {
	t.Helper()
	if os.Getenv(transportVariable) == "ssh" {
		return setupSSH(t, gitserver.SSHConfig{}, args...)
	}
	return setupOn(t, gitserver.New(t, gitserver.Config{}), args...)
}

func setupSSH(t *testing.T, c gitserver.SSHConfig, args ...string) *fixture {
	t.Helper()
	s := gitserver.New(t, gitserver.Config{})
	r := s.NewRepository(t, "repo.git", args...)
	h, key := s.NewSSH(t, c)
	r.URL = h.URL(r.Name)
	f := &fixture{TestRepository: r, server: s, ssh: h}
	f.secret = map[string][]byte{"identity": key, "known_hosts": h.KnownHosts()}
	f.repo = f.open(t, nil)
	return f
}

func setupOn(t *testing.T, s *gitserver.Server, args ...string) *fixture {
	t.Helper()
	r := s.NewRepository(t, "repo.git", args...)
	f := &fixture{TestRepository: r, server: s}
	f.repo = f.open(t, nil)
	return f
}

// open makes another Repository on the same remote, with nothing cached.
func (f *fixture) open(t *testing.T, secret map[string][]byte) *git.Repository {
	t.Helper()
	if secret == nil {
		secret = f.secret
	}
	return f.openWith(t, secret, nil)
}

func (f *fixture) openWith(t *testing.T, secret map[string][]byte, signer func(context.Context) (git.Signer, error)) *git.Repository {
	t.Helper()
	c := git.Config{URL: f.URL, AllowInsecureHTTP: true, Timeout: 30 * time.Second, Signer: signer}
	if secret != nil {
		c.Credentials = func(context.Context) (git.Credentials, error) { return git.ParseSecret(secret) }
	}
	r, err := git.NewRepository(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

var closedAt = time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("somewhere", 3600))

// commit writes files: path, content, path, content; an empty content removes.
func commit(files ...string) git.Commit {
	return git.Commit{
		Author:    git.Signature{Name: "alice", Email: "alice@example.com", When: closedAt},
		Committer: git.Signature{Name: "kommit", Email: "kommit@example.com", When: closedAt},
		Edit: func(context.Context, *git.Tree) ([]git.File, error) {
			var out []git.File
			for i := 0; i < len(files); i += 2 {
				f := git.File{Path: files[i]}
				if files[i+1] != "" {
					f.Content = []byte(files[i+1])
				}
				out = append(out, f)
			}
			return out, nil
		},
		Message: func([]string) string { return "Save" },
	}
}

func (f *fixture) push(t *testing.T, branch string, commits ...git.Commit) []git.Built {
	t.Helper()
	built, err := f.repo.Push(t.Context(), branch, commits, nil)
	if err != nil {
		t.Fatalf("Push: %v", err)
	}
	if len(built) != len(commits) {
		t.Fatalf("Push returned %d results for %d commits", len(built), len(commits))
	}
	return built
}

func (f *fixture) pushOne(t *testing.T, branch string, c git.Commit) git.Built {
	t.Helper()
	b := f.push(t, branch, c)[0]
	if b.Err != nil {
		t.Fatalf("commit: %v", b.Err)
	}
	return b
}

// lsTree is all of a revision: mode, hash and path of every entry, trees too.
func (f *fixture) lsTree(revision string) string {
	return f.Must("ls-tree", "-r", "-t", revision)
}

func (f *fixture) count(t *testing.T, branch string) int {
	t.Helper()
	out, err := f.Log(t.Context(), branch, "--format=%H")
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(out))
}

// posts counts the pushes since the last call.
func (f *fixture) posts(t *testing.T) int {
	t.Helper()
	n := 0
	if f.ssh != nil {
		all, err := f.ssh.Pushes()
		if err != nil {
			t.Fatal(err)
		}
		n, f.seen = all-f.seen, all
		return n
	}
	for _, r := range f.server.Requests() {
		if r.Method == "POST" && strings.HasSuffix(r.Path, "/git-receive-pack") {
			n++
		}
	}
	return n
}

func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, quoted(got), quoted(want))
	}
}

func quoted(v any) string { return fmt.Sprintf("%+q", fmt.Sprint(v)) }
