// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// linear makes main a history of that many commits. The first one makes
// once/file.yaml. The nth one changes apps/<n mod every>/file.yaml, or, when that is
// 0, nothing.
func (f *fixture) linear(t *testing.T, commits, every int) {
	t.Helper()
	var in strings.Builder
	for n := range commits {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter C <c@example.com> %d +0000\ndata 0\n", 1700000000+n)
		if n == 0 {
			in.WriteString("M 100644 inline once/file.yaml\ndata 2\n1\n")
		}
		if every == 0 {
			in.WriteByte('\n')
			continue
		}
		content := fmt.Sprintln("value:", n)
		fmt.Fprintf(&in, "M 100644 inline apps/%d/file.yaml\ndata %d\n%s\n", n%every, len(content), content)
	}
	if err := f.Import(t.Context(), in.String()); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) log(t *testing.T, r *git.Repository, o git.LogOptions) git.Log {
	t.Helper()
	l, err := r.Log(t.Context(), o)
	if err != nil {
		t.Fatalf("Log(%+v): %v", o, err)
	}
	return l
}

func hashes(l git.Log) string {
	var b strings.Builder
	for _, c := range l.Commits {
		b.WriteString(c.Hash + "\n")
	}
	return b.String()
}

func TestLogWithoutAHistory(t *testing.T) {
	f := setup(t)
	for _, branch := range []string{"main", "other"} {
		l := f.log(t, f.repo, git.LogOptions{Branch: branch, Path: "apps"})
		if l.Tip != "" || len(l.Commits) > 0 || l.More || l.Truncated {
			t.Errorf("%s: %+v", branch, l)
		}
		f.MustCommit("main", map[string]string{"b": "1\n"}) // and once more with a repository
	}
	l := f.log(t, f.repo, git.LogOptions{Branch: "main", Path: "apps"})
	if l.Tip != f.MustHead("main") || len(l.Commits) > 0 || l.More || l.Truncated {
		t.Errorf("a path that does not exist: %+v", l)
	}
}

// G1: what a page costs depends on how far it reaches back, not on how much there
// is. The figures are: the list of refs, the commits, and then for each piece of
// history that is compared one request for each level of directories.
func TestLogCostsAsMuchAsItReachesBack(t *testing.T) {
	for _, commits := range []int{250, 1000} {
		f := setup(t)
		f.configure(t, "uploadpack.allowFilter", "true")
		f.linear(t, commits, 10)
		for _, tc := range []struct {
			path     string
			requests int
		}{
			{"apps", 1 + 1 + 3}, // root, apps, apps/n
			{"", 1 + 1 + 3},
			{"apps/0", 1 + 3*(1+3)}, // 32, 64 and 128 commits, apps/0 with its files
		} {
			r := f.open(t, nil)
			f.server.Requests()
			l := f.log(t, r, git.LogOptions{Branch: "main", Path: tc.path, Limit: 20})
			n := len(f.server.Requests())
			wantEqual(t, "commits", len(l.Commits), 20)
			wantEqual(t, "more", l.More, true)
			if n > tc.requests {
				t.Errorf("%d commits, path %q: %d requests, want at most %d", commits, tc.path, n, tc.requests)
			}
			t.Logf("%d commits, path %q: %d requests", commits, tc.path, n)

			f.server.Requests()
			wantEqual(t, "the same again", hashes(f.log(t, r, git.LogOptions{Branch: "main", Path: tc.path, Limit: 20})), hashes(l))
			wantEqual(t, "requests for that", len(f.server.Requests()), 1)
		}
	}
}

func TestLogGoesOnFromItsTip(t *testing.T) {
	f := setup(t)
	f.linear(t, 30, 3)
	want := f.gitLog(t, "apps/1")
	first := f.log(t, f.repo, git.LogOptions{Branch: "main", Path: "apps/1", Limit: 4})
	f.MustCommit("main", map[string]string{"apps/1/file.yaml": "later\n"})
	rest := f.log(t, f.open(t, nil), git.LogOptions{Branch: "main", Path: "apps/1", Tip: first.Tip, Skip: 4})
	wantEqual(t, "both pages", hashes(first)+hashes(rest), strings.Join(want, "\n")+"\n")
	wantEqual(t, "tip", rest.Tip, first.Tip)
	wantEqual(t, "more", rest.More, false)
	wantEqual(t, "behind the end", hashes(f.log(t, f.repo, git.LogOptions{Branch: "main", Path: "apps/1", Skip: 1000})), "")

	// Who may read this branch may not read another by naming its tip.
	other := f.MustCommit("other", map[string]string{"secret": "1\n"})
	for _, tip := range []string{other, strings.Repeat("1", 40)} {
		if l, err := f.repo.Log(t.Context(), git.LogOptions{Branch: "main", Tip: tip}); !errors.Is(err, fs.ErrNotExist) || len(l.Commits) > 0 {
			t.Errorf("tip %s: %+v, %v", tip, l, err)
		}
	}
	// A branch that was set back does not hold it any more.
	f.Must("update-ref", "refs/heads/main", want[5])
	if _, err := f.repo.Log(t.Context(), git.LogOptions{Branch: "main", Tip: first.Tip}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("tip of a branch that was set back: %v", err)
	}
	f.Must("update-ref", "-d", "refs/heads/main")
	if _, err := f.repo.Log(t.Context(), git.LogOptions{Branch: "main", Tip: first.Tip}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("tip of a branch that was deleted: %v", err)
	}
}

func TestLogSaysWhenHistoryGoesFurtherBack(t *testing.T) {
	f := setup(t)
	f.configure(t, "uploadpack.allowFilter", "true")
	f.linear(t, 4100, 0)
	l := f.log(t, f.repo, git.LogOptions{Branch: "main", Path: "once"})
	if len(l.Commits) > 0 || l.More || !l.Truncated {
		t.Errorf("4100 commits: %d, more %t, truncated %t", len(l.Commits), l.More, l.Truncated)
	}

	f = setup(t)
	f.linear(t, 120, 3)
	l = f.log(t, f.repo, git.LogOptions{Branch: "main", Path: "apps"})
	if len(l.Commits) < 40 || l.More || !l.Truncated {
		t.Errorf("without filter: %d, more %t, truncated %t", len(l.Commits), l.More, l.Truncated)
	}
	wantEqual(t, "what is listed", strings.HasPrefix(strings.Join(f.gitLog(t, "apps"), "\n")+"\n", hashes(l)), true)
}

// tipsOnly stands for a remote that serves nothing but what a ref points at, as
// git's upload-pack does over SSH: HTTP is stateless, so there git never does.
func tipsOnly(f **fixture) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return
				}
				refs, err := (*f).Git(r.Context(), "for-each-ref", "--format=%(objectname)")
				for line := range bytes.Lines(body) {
					if _, want, ok := bytes.Cut(line, []byte("want ")); err != nil || ok && !strings.Contains(refs, string(want[:40])) {
						_, _ = io.WriteString(w, "0021ERR upload-pack: not our ref\n0000")
						return
					}
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			next.ServeHTTP(w, r)
		})
	}
}

func TestLogAndShowOfARemoteThatServesOnlyTips(t *testing.T) {
	for _, offered := range []string{"true", "false"} {
		t.Run("uploadpack.allowFilter="+offered, func(t *testing.T) {
			var f *fixture
			s := gitserver.New(t, gitserver.Config{Wrap: tipsOnly(&f)})
			f = setupOn(t, s)
			f.configure(t, "uploadpack.allowFilter", offered)
			f.linear(t, 120, 2)
			for _, path := range []string{"", "apps", "apps/1"} {
				r := f.open(t, nil)
				l := f.log(t, r, git.LogOptions{Branch: "main", Path: path, Limit: 10})
				wantEqual(t, path, hashes(l), strings.Join(f.gitLog(t, path)[:10], "\n")+"\n")
				wantEqual(t, "more", l.More, true)
				l = f.log(t, r, git.LogOptions{Branch: "main", Path: path})
				wantEqual(t, "truncated", l.Truncated, true)
				if n := len(l.Commits); n < 20 || !strings.HasPrefix(strings.Join(f.gitLog(t, path), "\n"), strings.TrimSpace(hashes(l))) {
					t.Errorf("path %q: %d commits", path, n)
				}
			}
			all := f.gitLog(t, "")
			for _, hash := range []string{all[0], all[7]} {
				c, err := f.open(t, nil).Show(t.Context(), hash, "")
				if err != nil {
					t.Fatal(err)
				}
				wantEqual(t, "applied", f.applied(t, c.LoggedCommit, c.Diff), f.Must("rev-parse", hash+"^{tree}"))
			}
			for _, hash := range []string{all[100], strings.Repeat("1", 40)} {
				if _, err := f.open(t, nil).Show(t.Context(), hash, ""); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("commit %s: %v", hash, err)
				}
			}
		})
	}
}

func TestLogAndShowRefuseWhatCannotBe(t *testing.T) {
	f := setup(t)
	for name, ask := range map[string]func() error{
		"branch": func() error { _, err := f.repo.Log(t.Context(), git.LogOptions{Branch: "HEAD"}); return err },
		"path": func() error {
			_, err := f.repo.Log(t.Context(), git.LogOptions{Branch: "main", Path: "../x"})
			return err
		},
		"commit": func() error {
			_, err := f.repo.Log(t.Context(), git.LogOptions{Branch: "main", Tip: "main"})
			return err
		},
		"commit of Show":    func() error { _, err := f.repo.Show(t.Context(), "main", ""); return err },
		"path of Show":      func() error { _, err := f.repo.Show(t.Context(), strings.Repeat("1", 40), "/"); return err },
		"branch of Preview": func() error { _, err := f.repo.Preview(t.Context(), "-", git.Commit{}); return err },
	} {
		subject, _, _ := strings.Cut(name, " ")
		wantEqual(t, name, wantError[*git.InvalidError](t, ask()).Subject, subject)
	}
	wantEqual(t, "requests", len(f.server.Requests()), 0)
}

func TestLogListsABoundedNumberOfFiles(t *testing.T) {
	for _, each := range []int{1, 3} { // in a directory: then the 500th is the last in its own, or not
		f := setup(t)
		f.configure(t, "uploadpack.allowFilter", "true")
		files, want := map[string]string{}, ""
		for i := range 700 {
			name := fmt.Sprintf("apps/%03d/%d.yaml", i/each, i%each)
			files[name] = fmt.Sprintln(i)
			if i < 500 {
				want += "A\x00" + name + "\x00"
			}
		}
		hash := f.MustCommit("main", files)
		l := f.log(t, f.repo, git.LogOptions{Branch: "main", Path: "apps"})
		wantEqual(t, "files", nameStatus(l.Commits[0].Files), want)
		wantEqual(t, "truncated", l.Commits[0].FilesTruncated, true)
		c := f.show(t, hash, "apps")
		wantEqual(t, "diffs", strings.Count(c.Diff, "diff --git "), 500)
		wantEqual(t, "last line", c.Diff[strings.LastIndex(strings.TrimSpace(c.Diff), "\n")+1:], "\\ The rest is left out: more than 500 files differ\n")
		wantEqual(t, "diff truncated", c.Truncated, true)
		wantEqual(t, "files of Show", nameStatus(c.Files), want)
	}
}

func TestLogAndShowEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var f *fixture
	s := gitserver.New(t, gitserver.Config{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body) // only behind it the end of the request is noticed
				cancel()
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	f = setupOn(t, s)
	f.MustCommit("main", map[string]string{"a": "1\n"})
	_, err := f.repo.Log(ctx, git.LogOptions{Branch: "main"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Log: %v", err)
	}
	if _, err := f.repo.Show(ctx, f.MustHead("main"), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("Show: %v", err)
	}
}
