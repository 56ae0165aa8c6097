// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// What hosts do that a plain Git server does not, with the public report of each.

// renovate#11154, #4786: "You can only push your own commits" looks at the
// committer, so that is the provider's identity and the author is the user's.
func TestHostThatChecksTheCommitter(t *testing.T) {
	f := setup(t)
	f.MustHook("pre-receive", `while read old new ref; do
  test "$(git log -1 --format=%ce $new)" = kommit@example.com || { echo 'You can only push your own commits' >&2; exit 1; }
done`)
	f.pushOne(t, "main", commit("a", "1\n"))
	wantEqual(t, "author", f.Must("log", "-1", "--format=%ae", "main"), "alice@example.com")
	other := commit("b", "1\n")
	other.Committer.Email = "alice@example.com"
	_, err := f.repo.Push(t.Context(), "main", []git.Commit{other}, nil)
	if e := wantError[*git.RefusedError](t, err); !strings.Contains(e.Text, "You can only push your own commits") {
		t.Errorf("text is %q", e.Text)
	}
}

// stash-hook-mirror#93: some hosts abort on push options that nobody asked for.
func TestNoPushOptionsAreSent(t *testing.T) {
	var sent atomic.Pointer[[]byte]
	s := gitserver.New(t, gitserver.Config{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				sent.Store(&body)
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			next.ServeHTTP(w, r)
		})
	}})
	f := setupOn(t, s)
	for name, value := range map[string]string{"receive.advertisePushOptions": "true", "receive.advertiseAtomic": "true"} {
		if err := f.Configure(t.Context(), name, value); err != nil {
			t.Fatal(err)
		}
	}
	f.pushOne(t, "main", commit("a", "1\n"))
	line, _, _ := bytes.Cut(*sent.Load(), []byte("PACK"))
	for _, capability := range []string{"push-options", "atomic", "push-cert"} {
		if bytes.Contains(line, []byte(capability)) {
			t.Errorf("the push asks for %s: %q", capability, line)
		}
	}
}

// nanogit#145, grafana#116880: a server leaves out trees that were asked for. They
// are asked for again by hash.
func TestServerThatLeavesOutTrees(t *testing.T) {
	s := gitserver.New(t, gitserver.Config{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/git-upload-pack") && r.Method == http.MethodPost {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				withTrees, without := []byte("0015filter blob:none\n"), []byte("0012filter tree:0\n")
				if bytes.Contains(body, []byte("deepen ")) {
					body = bytes.Replace(body, withTrees, without, 1)
				}
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			}
			next.ServeHTTP(w, r)
		})
	}})
	f := setupOn(t, s)
	head := f.MustCommit("main", map[string]string{"d/e/a.yaml": "a: 1\n", "d/b.yaml": "b: 1\n"})
	f.pushOne(t, "main", commit("d/e/a.yaml", "a: 2\n"))
	wantEqual(t, "parent", f.Must("rev-parse", "main^"), head)
	wantEqual(t, "a.yaml", f.Must("show", "main:d/e/a.yaml"), "a: 2")
	wantEqual(t, "b.yaml", f.Must("show", "main:d/b.yaml"), "b: 1")
	wantEqual(t, "files", f.Must("diff", "--name-only", "main^", "main"), "d/e/a.yaml")
}

// argocd-image-updater#879, #673: a branch that is there already, ahead of or
// behind another one, is gone on with and never forced.
func TestBranchThatIsThereAlready(t *testing.T) {
	f := setup(t)
	f.MustCommit("main", map[string]string{"a": "1\n"})
	f.Must("branch", "feature/save", "main")
	f.MustCommit("main", map[string]string{"b": "1\n"})
	tip := f.MustCommit("feature/save", map[string]string{"c": "1\n"})
	f.pushOne(t, "feature/save", commit("d", "1\n"))
	wantEqual(t, "parent", f.Must("rev-parse", "feature/save^"), tip)
	wantEqual(t, "files", strings.Fields(f.Must("ls-tree", "--name-only", "feature/save"))[2], "d")
	wantEqual(t, "commits on main", f.count(t, "main"), 2)
}
