// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// tryPush pushes one changed file and returns the error.
func (f *fixture) tryPush(t *testing.T) error {
	t.Helper()
	_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("a.yaml", "a: 1\n")}, nil)
	return err
}

func wantError[E error](t *testing.T, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("error is %T (%v), want %T", err, err, e)
	}
	return e
}

func TestG4RefusalsInTheRemotesOwnWords(t *testing.T) {
	for _, tc := range []struct {
		name, hook, script string
		want               []string
	}{
		// go-git#787, grafana#126786: what the hook printed was lost.
		{"pre-receive", "pre-receive", "echo 'GL-HOOK-ERR: bad message' >&2; exit 1", []string{"GL-HOOK-ERR: bad message", "pre-receive hook declined"}},
		// IAC#194, kestra#4680: reported as success. gin-cli#305: as a moved branch.
		{"protected branch", "update", "echo \"$1 is protected\" >&2; exit 1", []string{"refs/heads/main is protected", "hook declined"}},
		// grafana#130303, GH007.
		{"author", "pre-receive", `while read old new ref; do git log -1 --format=%ae $new | grep -q '@corp$' || { echo 'Author is not a member of team' >&2; exit 1; }; done`, []string{"Author is not a member of team"}},
		// renovate#44819, GH013, with the decoration that hosts send.
		{"decorated", "pre-receive", `printf '\033[1;31mGH013:\033[0m Repository rule violations found\r\n\n  50%%\r 100%% scanned\n' >&2; exit 1`, []string{"GH013: Repository rule violations found\n100% scanned\n"}},
		{"silent", "pre-receive", "exit 1", []string{"pre-receive hook declined"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := setup(t)
			head := f.MustCommit("main", map[string]string{"README": "1\n"})
			f.MustHook(tc.hook, tc.script)
			e := wantError[*git.RefusedError](t, f.tryPush(t))
			wantEqual(t, "ref", e.Ref, "refs/heads/main")
			for _, w := range tc.want {
				if !strings.Contains(e.Text, w) {
					t.Errorf("text %q lacks %q", e.Text, w)
				}
			}
			wantEqual(t, "head", f.MustHead("main"), head)
			wantEqual(t, "pushes", f.posts(t), 1) // no retry
		})
	}
}

func TestTextIsBoundedAndRedacted(t *testing.T) {
	s := gitserver.New(t, gitserver.Config{Username: "robot", Password: "hunter2-hunter2"})
	f := setupOn(t, s)
	f.repo = f.open(t, map[string][]byte{"username": []byte("robot"), "password": []byte("hunter2-hunter2\n")})
	f.MustHook("pre-receive", "echo 'you sent hunter2-hunter2' >&2; yes 'all work and no play' | head -c 300000 >&2; exit 1")
	e := wantError[*git.RefusedError](t, f.tryPush(t))
	if strings.Contains(e.Error(), "hunter2") || !strings.HasPrefix(e.Text, "you sent [redacted]\n") {
		t.Errorf("text %.100q", e.Text)
	}
	if len(e.Text) > 4200 {
		t.Errorf("text has %d bytes", len(e.Text))
	}
}

func TestBranchUnderneathABranch(t *testing.T) { // go-git#1822, egg#2399
	f := setup(t)
	f.MustCommit("main", map[string]string{"README": "1\n"})
	_, err := f.repo.Push(t.Context(), "main/sub", []git.Commit{commit("a", "1\n")}, nil)
	e := wantError[*git.RefusedError](t, err)
	if !strings.Contains(e.Text, "refs/heads/main") {
		t.Errorf("text %q does not say what is in the way", e.Text)
	}
}

func TestSHA256RepositoryIsUnsupported(t *testing.T) { // kluctl#1204, go-git#706
	f := setup(t, "--object-format=sha256")
	want := func(what string, err error) {
		t.Helper()
		if e := wantError[*git.UnsupportedError](t, err); !strings.Contains(e.What, "SHA-256") {
			t.Errorf("%s: %v does not say what is not supported", what, err)
		}
	}
	want("push to an empty one", f.tryPush(t))
	want("probe of an empty one", f.repo.Probe(t.Context()))
	// An empty repository does not tell a reader; it holds nothing that could be misread.
	head := f.MustCommit("main", map[string]string{"README": "1\n"})
	want("push", f.tryPush(t))
	want("probe", f.repo.Probe(t.Context()))
	_, err := f.repo.Tree(t.Context(), "main")
	want("tree", err)
	_, err = f.repo.Preview(t.Context(), "main", commit("a", "1\n"))
	want("preview", err)
	_, err = f.repo.Log(t.Context(), git.LogOptions{Branch: "main"})
	want("log", err)
	wantEqual(t, "head", f.MustHead("main"), head)
}

func TestUnreachableRemoteThatReturns(t *testing.T) {
	f := setup(t)
	f.pushOne(t, "main", commit("a", "1\n"))
	if err := f.server.Down(); err != nil {
		t.Fatal(err)
	}
	e := wantError[*git.UnreachableError](t, f.tryPush(t))
	if e.Err == nil || !strings.Contains(e.Error(), "connection refused") {
		t.Errorf("error %v does not say why", e)
	}
	wantError[*git.UnreachableError](t, f.repo.Probe(t.Context()))
	if err := f.server.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.tryPush(t); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "commits", f.count(t, "main"), 2)
}

// interference is what stands between us and a server, when it is set.
type interference struct {
	handler atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]
}

func (i *interference) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := i.handler.Load(); h != nil {
			(*h)(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (i *interference) set(h func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	i.handler.Store(&h)
}

func interfered(t *testing.T) (*fixture, *interference) {
	t.Helper()
	i := &interference{}
	return setupOn(t, gitserver.New(t, gitserver.Config{Wrap: i.wrap})), i
}

func isPush(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack")
}

// swallow lets git do its work, and keeps what it says.
type swallow struct{ header http.Header }

func (s swallow) Header() http.Header         { return s.header }
func (s swallow) Write(b []byte) (int, error) { return len(b), nil }
func (s swallow) WriteHeader(int)             {}

// The connection breaks after the remote has done its work: the commit is there.
func TestG4CutConnectionAfterThePushLanded(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"cut":         func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"empty":       func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, // go-git: http/receive_pack.go takes it for success
		"bad gateway": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		"a web page":  func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>ok refs/heads/main</html>") },
		"unpack only": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "000eunpack ok\n0000") },
		"another ref": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "000eunpack ok\n001aok refs/heads/mainly\n0000") },
		"refused, even": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "000eunpack ok\n001bng refs/heads/main odd\n0000")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, i := interfered(t)
			f.MustCommit("main", map[string]string{"README": "1\n"})
			i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if !isPush(r) {
					next.ServeHTTP(w, r)
					return
				}
				next.ServeHTTP(swallow{http.Header{}}, r)
				answer(w)
			})
			b := f.pushOne(t, "main", commit("a", "1\n"))
			wantEqual(t, "head", f.MustHead("main"), b.Hash)
			wantEqual(t, "pushes", f.posts(t), 1)
		})
	}
}

// As above, and somebody commits on top before the branch is read again.
func TestG4LandedBeneathAForeignCommit(t *testing.T) {
	for _, offered := range []string{"true", "false"} {
		t.Run("uploadpack.allowFilter="+offered, func(t *testing.T) {
			f, i := interfered(t)
			if err := f.Configure(t.Context(), "uploadpack.allowFilter", offered); err != nil {
				t.Fatal(err)
			}
			f.MustCommit("main", map[string]string{"README": "1\n"})
			i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if !isPush(r) {
					next.ServeHTTP(w, r)
					return
				}
				next.ServeHTTP(swallow{http.Header{}}, r)
				f.MustCommit("main", map[string]string{"foreign": "1\n"})
				f.MustCommit("main", map[string]string{"foreign": "2\n"})
				panic(http.ErrAbortHandler)
			})
			b := f.pushOne(t, "main", commit("a", "1\n"))
			wantEqual(t, "ours", f.Must("rev-parse", "main~2"), b.Hash)
			wantEqual(t, "pushes", f.posts(t), 1)
			wantEqual(t, "commits", f.count(t, "main"), 4)
		})
	}
}

// The connection breaks before the remote did anything: not terminal, and the
// next attempt makes the very same commit (G5).
func TestG4CutConnectionBeforeThePush(t *testing.T) {
	f, i := interfered(t)
	head := f.MustCommit("main", map[string]string{"README": "1\n"})
	i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isPush(r) {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
	var recorded string
	_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("a", "1\n")}, func(b []git.Built) error {
		recorded = b[0].Hash
		return nil
	})
	wantError[*git.UnreachableError](t, err)
	wantEqual(t, "head", f.MustHead("main"), head)
	i.handler.Store(nil)
	c := commit("a", "1\n")
	c.Recorded = hashesOf(recorded)
	wantEqual(t, "hash", f.pushOne(t, "main", c).Hash, recorded)
}

// Neither the push nor the reading after it is answered; what was recorded tells
// the next attempt.
func TestD2UnsettledPushThatLanded(t *testing.T) {
	f, i := interfered(t)
	f.MustCommit("main", map[string]string{"README": "1\n"})
	var pushed atomic.Bool
	i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if pushed.Load() {
			panic(http.ErrAbortHandler)
		}
		if isPush(r) {
			next.ServeHTTP(swallow{http.Header{}}, r)
			pushed.Store(true)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
	var recorded string
	_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("a", "1\n")}, func(b []git.Built) error {
		recorded = b[0].Hash
		return nil
	})
	wantError[*git.UnreachableError](t, err)
	i.handler.Store(nil)
	c := commit("a", "1\n")
	c.Recorded = hashesOf(recorded)
	wantEqual(t, "hash", f.pushOne(t, "main", c).Hash, recorded)
	wantEqual(t, "commits", f.count(t, "main"), 2)
}

func TestG9ContextAndTimeoutEndEverything(t *testing.T) { // IAC#296
	f, i := interfered(t)
	f.MustCommit("main", map[string]string{"README": "1\n"})
	stuck := make(chan struct{})
	for name, at := range map[string]func(*http.Request) bool{
		"advertisement": func(r *http.Request) bool { return strings.HasSuffix(r.URL.RawQuery, "git-receive-pack") },
		"push":          isPush,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if !at(r) {
					next.ServeHTTP(w, r)
					return
				}
				cancel()
				select {
				case <-stuck:
				case <-r.Context().Done():
				}
				panic(http.ErrAbortHandler)
			})
			_, err := f.repo.Push(ctx, "main", []git.Commit{commit("a", "1\n")}, nil)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want context.Canceled", err)
			}
		})
	}
	t.Run("timeout", func(t *testing.T) {
		i.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			select {
			case <-stuck:
			case <-r.Context().Done():
			}
		})
		repo, err := git.NewRepository(git.Config{URL: f.URL, AllowInsecureHTTP: true, Timeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		err = repo.Probe(t.Context())
		wantError[*git.UnreachableError](t, err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want context.DeadlineExceeded", err)
		}
	})
	close(stuck)
}

func TestLargePushIsAskedForFirst(t *testing.T) { // gitea#32839: 413 before the body is read
	f, i := interfered(t)
	f.MustCommit("main", map[string]string{"README": "1\n"})
	i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isPush(r) && r.ContentLength > 1<<20 {
			w.Header().Set("Connection", "close")
			http.Error(w, "client intended to send too large body", http.StatusRequestEntityTooLarge)
			return
		}
		next.ServeHTTP(w, r)
	})
	big := string(noise(3 << 20))
	_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("big", big)}, nil)
	e := wantError[*git.RefusedError](t, err)
	if !strings.Contains(e.Text, "413") || !strings.Contains(e.Text, "too large body") {
		t.Errorf("text %q", e.Text)
	}
	i.handler.Store(nil)
	f.pushOne(t, "main", commit("big", big))
	wantEqual(t, "bytes", len(f.MustShow("main", "big")), len(big))
}

// noise cannot be compressed.
func noise(size int) []byte {
	b := make([]byte, size)
	for i, x := 0, uint32(1); i < len(b); i++ {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func TestConnectionsAreReused(t *testing.T) { // go-git#590, keptn#9395
	var connections atomic.Int32
	seen := map[string]bool{}
	s := gitserver.New(t, gitserver.Config{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !seen[r.RemoteAddr] {
				seen[r.RemoteAddr] = true
				connections.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	}})
	f := setupOn(t, s)
	for n := range 5 {
		f.pushOne(t, "main", commit("a", strings.Repeat("x", n+1)))
	}
	wantEqual(t, "connections", connections.Load(), 1)
}

// Reported of hosts with replicas: right after a push, one still advertises the old tip.
func TestLaggingReplica(t *testing.T) {
	f, i := interfered(t)
	f.MustCommit("main", map[string]string{"README": "1\n"})
	var stale atomic.Pointer[httptest.ResponseRecorder]
	i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.HasSuffix(r.URL.RawQuery, "git-receive-pack") {
			next.ServeHTTP(w, r)
			return
		}
		answer := stale.Load()
		if answer == nil {
			answer = httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			stale.Store(answer)
		}
		_, _ = w.Write(answer.Body.Bytes())
	})
	first := f.pushOne(t, "main", commit("a", "1\n"))
	second := f.pushOne(t, "main", commit("a", "2\n"))
	third := f.pushOne(t, "main", commit("a", "3\n"))
	wantEqual(t, "pushes", f.posts(t), 3)
	wantEqual(t, "head", f.MustHead("main"), third.Hash)
	wantEqual(t, "history", f.Must("rev-parse", "main~1", "main~2"), second.Hash+"\n"+first.Hash)

	// A refusal is still one, and a branch that really was set back is replayed on.
	f.MustHook("pre-receive", "echo no >&2; exit 1")
	wantError[*git.RefusedError](t, f.tryPush(t))
	f.MustHook("pre-receive", "")
	f.Must("update-ref", "refs/heads/main", first.Hash)
	i.handler.Store(nil)
	fourth := f.pushOne(t, "main", commit("a", "4\n"))
	wantEqual(t, "head", f.MustHead("main"), fourth.Hash)
	wantEqual(t, "parent", f.Must("rev-parse", "main^"), first.Hash)
}
