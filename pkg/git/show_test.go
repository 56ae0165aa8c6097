// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/pkg/git"
)

func (f *fixture) show(t *testing.T, hash, dir string) git.Shown {
	t.Helper()
	c, err := f.repo.Show(t.Context(), hash, dir)
	if err != nil {
		t.Fatalf("Show(%s, %q): %v", hash, dir, err)
	}
	return c
}

func TestShowOfWhatIsNoCommit(t *testing.T) {
	f := setup(t)
	if _, err := f.repo.Show(t.Context(), strings.Repeat("1", 40), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in an empty repository: %v", err)
	}
	head := f.MustCommit("main", map[string]string{"a": "1\n"})
	f.Must("-c", "user.name=t", "-c", "user.email=t@example.com", "tag", "-m", "x", "v1", head)
	for _, what := range []string{"main^{tree}", "main:a", "v1"} {
		if c, err := f.repo.Show(t.Context(), f.Must("rev-parse", what), ""); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
	if err := f.server.Down(); err != nil {
		t.Fatal(err)
	}
	_, err := f.open(t, nil).Show(t.Context(), head, "")
	if errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a remote that is down: %v", err)
	}
	wantError[*git.UnreachableError](t, err)
}

func TestShowCostsOneRequestForEachLevel(t *testing.T) {
	f := setup(t)
	f.configure(t, "uploadpack.allowFilter", "true")
	f.MustCommit("main", map[string]string{"a/b/c": "1\n", "a/b/d": "1\n", "a/e/f": "1\n"})
	head := f.MustCommit("main", map[string]string{"a/b/c": "2\n", "a/b/d": "2\n", "a/e/f": "2\n"})
	for _, warm := range []bool{false, true} {
		f.server.Requests()
		if got := f.show(t, head, "a"); len(got.Files) != 3 {
			t.Errorf("files %v", got.Files)
		}
		want := 1 + 1 + 3 + 1 // the list of refs, the commits, three levels, the files
		if warm {
			want = 0
		}
		wantEqual(t, "requests", len(f.server.Requests()), want)
	}
}

// Directories without files in them and modes that git does not tell apart are no
// differences; a file that becomes a link with the same bytes is one.
func TestOddTreesAreComparedAsGitDoes(t *testing.T) {
	f := setup(t)
	blob := f.MustWrite("blob", "x\n")
	tree := func(entries ...string) string { // mode, name, hash, mode, name, hash
		var b strings.Builder
		for i := 0; i < len(entries); i += 3 {
			hash, err := hex.DecodeString(entries[i+2])
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString(entries[i] + " " + entries[i+1] + "\x00" + string(hash))
		}
		return f.MustWrite("tree", b.String())
	}
	empty := tree()
	nested := tree("40000", "empty", empty)
	for _, apps := range []string{
		tree("100644", "x", blob),
		tree("40000", "empty", empty, "100644", "x", blob),
		tree("40000", "empty", nested, "100644", "x", blob),
		tree("100664", "x", blob),
		tree("100755", "x", blob),
		tree("120000", "x", blob),
		nested,
		empty,
	} {
		if _, err := f.CommitTree(t.Context(), "main", tree("40000", "apps", apps), "A <a@example.com>", "x"); err != nil {
			t.Fatal(err)
		}
	}
	l := f.log(t, f.repo, git.LogOptions{Branch: "main", Path: "apps"})
	wantEqual(t, "log", hashes(l), strings.Join(f.gitLog(t, "apps"), "\n")+"\n")
	wantEqual(t, "commits", len(l.Commits), 4)
	want := f.diffTrees(t, l.Commits, "", "\n", "-p")
	for _, c := range l.Commits {
		wantEqual(t, "diff", f.show(t, c.Hash, "").Diff, want[c.Hash])
	}
}

// What git shows as a pointer is shown as one.
func TestShowOfALargeFileStorePointer(t *testing.T) {
	f := setup(t)
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) + "\nsize 1\n"
	c := f.show(t, f.MustCommit("main", map[string]string{"a.yaml": pointer}), "")
	if !strings.Contains(c.Diff, "\n+version https://git-lfs.github.com/spec/v1\n+oid") {
		t.Errorf("diff %q", c.Diff)
	}
}

func TestShowIsBounded(t *testing.T) {
	f := setup(t)
	f.configure(t, "uploadpack.allowFilter", "true")
	line := strings.Repeat("x", 99) + "\n"
	// It ends behind the last whole line.
	c := f.show(t, f.MustCommit("main", map[string]string{"a": "1\n", "b": strings.Repeat(line, 12_000), "c": "3\n"}), "")
	const why = "\\ The rest is left out: the diff is longer than 1048576 bytes\n"
	if len(c.Diff) > 1<<20+len(why) || len(c.Diff) < 1<<20-200 || !strings.HasSuffix(c.Diff, "\n+"+line+why) {
		t.Errorf("%d bytes that end in %q", len(c.Diff), c.Diff[len(c.Diff)-200:])
	}
	wantEqual(t, "truncated", c.Truncated, true)
	wantEqual(t, "files", len(c.Files), 3)

	c = f.show(t, f.MustCommit("main", map[string]string{"b": strings.Repeat("x", 2<<20)}), "")
	if !c.Truncated || !strings.HasSuffix(c.Diff, "-"+line+why) {
		t.Errorf("one line: %d bytes that end in %q", len(c.Diff), c.Diff[max(0, len(c.Diff)-200):])
	}

	c = f.show(t, f.MustCommit("main", map[string]string{"b": strings.Repeat(line, 60_000), "c": "4\n"}), "")
	if c.Truncated || !strings.Contains(c.Diff, "\nBinary files a/b and b/b differ\ndiff --git a/c b/c\n") {
		t.Errorf("6 MB of text: %.300q", c.Diff)
	}

	large := map[string]string{"large1": strings.Repeat("1\n", 17<<19), "large2": strings.Repeat("2\n", 17<<19)}
	c = f.show(t, f.MustCommit("main", large), "")
	wantEqual(t, "34 MiB", c.Diff, "\\ The rest is left out: the files are larger than 33554432 bytes together\n")
	wantEqual(t, "files", len(c.Files), 2)
	wantEqual(t, "truncated", c.Truncated, true)
}

func TestCommitsAreReadTolerantly(t *testing.T) {
	f := setup(t)
	tree := f.MustWrite("tree", "")
	at := func(unix int64, zone int) time.Time {
		if zone == 0 {
			return time.Unix(unix, 0).UTC()
		}
		return time.Unix(unix, 0).In(time.FixedZone("", zone*60))
	}
	for name, tc := range map[string]struct {
		header, message string
		want            git.LoggedCommit
	}{
		"usual": {"author A b <a@example.com> 1700000000 +0130\ncommitter C <c@example.com> 1700000001 -0800\n", "one\n\ntwo\n\n\n",
			git.LoggedCommit{Author: git.Signature{Name: "A b", Email: "a@example.com", When: at(1700000000, 90)}, Committer: git.Signature{Name: "C", Email: "c@example.com", When: at(1700000001, -480)}, Message: "one\n\ntwo\n\n\n"}},
		"Latin-1": {"author \xc4 <\xe4@example.com> 1 +0000\ncommitter C <c> 2 +0000\nencoding ISO-8859-1\n", "\xf6\xdf\n",
			git.LoggedCommit{Author: git.Signature{Name: "Ä", Email: "ä@example.com", When: at(1, 0)}, Committer: git.Signature{Name: "C", Email: "c", When: at(2, 0)}, Message: "öß\n"}},
		"an encoding that is not known, and bytes that are no text": {"author A <a> 1 +0000\ncommitter C\xff <c> 2 +0000\nencoding x-klingon\n", "a\xe4\n",
			git.LoggedCommit{Author: git.Signature{Name: "A", Email: "a", When: at(1, 0)}, Committer: git.Signature{Name: "C\uFFFD", Email: "c", When: at(2, 0)}, Message: "a\uFFFD\n"}},
		"no author": {"committer C <c> 2 +0000\n", "x",
			git.LoggedCommit{Committer: git.Signature{Name: "C", Email: "c", When: at(2, 0)}, Message: "x"}},
		"nothing": {"", "", git.LoggedCommit{}},
		"signed": {"author A <a> 1 +0000\ncommitter C <c> 2 +0000\ngpgsig -----BEGIN SSH SIGNATURE-----\n author X <x> 3 +0000\n -----END SSH SIGNATURE-----\nmergetag object 1\n committer Y <y> 4 +0000\n", "\nx\n",
			git.LoggedCommit{Author: git.Signature{Name: "A", Email: "a", When: at(1, 0)}, Committer: git.Signature{Name: "C", Email: "c", When: at(2, 0)}, Message: "\nx\n"}},
		"odd times": {"author A <a> 99999999999999999999 +0000\ncommitter C <c> 2 +9999\n", "x\n",
			git.LoggedCommit{Author: git.Signature{Name: "A", Email: "a"}, Committer: git.Signature{Name: "C", Email: "c", When: at(2, 0)}, Message: "x\n"}},
		"far future, no zone": {"author A <a> 253402300800 +0000\ncommitter C <c> 2\n", "x\n",
			git.LoggedCommit{Author: git.Signature{Name: "A", Email: "a"}, Committer: git.Signature{Name: "C", Email: "c", When: at(2, 0)}, Message: "x\n"}},
		"odd signatures": {"author <a@b> 1 +0000\ncommitter C <c>>d> 2 +0000\n", "x\n",
			git.LoggedCommit{Author: git.Signature{Email: "a@b", When: at(1, 0)}, Committer: git.Signature{Name: "C", Email: "c", When: at(2, 0)}, Message: "x\n"}},
		"no time, no e-mail": {"author A <a>\ncommitter C 2 +0000\n", "x\n",
			git.LoggedCommit{Author: git.Signature{Name: "A", Email: "a"}, Committer: git.Signature{Name: "C 2 +0000"}, Message: "x\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			hash, err := f.server.Repository("repo.git").WriteObject(t.Context(), "commit", []byte("tree "+tree+"\n"+tc.header+"\n"+tc.message))
			if err != nil {
				t.Fatal(err)
			}
			f.Must("update-ref", "refs/heads/odd", hash)
			tc.want.Hash = hash
			c := f.show(t, hash, "")
			wantEqual(t, "commit", fmt.Sprint(c.LoggedCommit), fmt.Sprint(tc.want))
			l := f.log(t, f.repo, git.LogOptions{Branch: "odd"})
			wantEqual(t, "logged", fmt.Sprint(l.Commits), fmt.Sprint([]git.LoggedCommit{tc.want}))
		})
	}
	f.Must("update-ref", "-d", "refs/heads/odd") // fsck has nothing to say to what no ref holds
	f.Must("prune", "--expire=now")
}

func TestPreviewIsWhatPushCommits(t *testing.T) {
	for name, tc := range map[string]struct {
		before map[string]string
		commit git.Commit
	}{
		"first commit":       {nil, commit("apps/a.yaml", "a: 1\n", "b", "no newline")},
		"change and removal": {map[string]string{"apps/a.yaml": "a: 1\nb: 2\n", "apps/b.yaml": "b\n", "c": "c\n"}, commit("apps/a.yaml", "a: 2\nb: 2\n", "apps/b.yaml", "", "new dir/ü.yaml", "x\n")},
		"the last file":      {map[string]string{"apps/a.yaml": "a: 1\n"}, commit("apps/a.yaml", "")},
		"nothing":            {map[string]string{"apps/a.yaml": "a: 1\n"}, commit("apps/a.yaml", "a: 1\n", "gone", "")},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			base := ""
			if tc.before != nil {
				base = f.MustCommit("main", tc.before)
			}
			objects := f.Must("count-objects", "-v")
			f.server.Requests()
			p, err := f.repo.Preview(t.Context(), "main", tc.commit)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range f.server.Requests() {
				if strings.Contains(r.Path, "receive-pack") {
					t.Errorf("request %v", r)
				}
			}
			wantEqual(t, "objects", f.Must("count-objects", "-v"), objects)
			wantEqual(t, "head", f.MustHead("main"), base)
			wantEqual(t, "base", p.Base, base)

			built := f.pushOne(t, "main", tc.commit)
			if built.Hash == "" {
				wantEqual(t, "diff", p.Diff, "")
				wantEqual(t, "files", len(p.Files), 0)
				return
			}
			c := f.show(t, built.Hash, "")
			wantEqual(t, "files", nameStatus(p.Files), nameStatus(c.Files))
			wantEqual(t, "diff", p.Diff, c.Diff)
			wantEqual(t, "changed", len(p.Files), len(built.Changed))
			wantEqual(t, "applied", f.applied(t, c.LoggedCommit, p.Diff), f.Must("rev-parse", "main^{tree}"))
		})
	}
}

func TestPreviewSaysWhyThereWouldBeNoCommit(t *testing.T) {
	f := setup(t)
	f.MustCommitModes("main", map[string]string{"link": "target"}, map[string]string{"link": "120000"})
	_, err := f.repo.Preview(t.Context(), "main", commit("link", "x\n"))
	wantEqual(t, "path", wantError[*git.NotRegularError](t, err).Path, "link")
	failed := errors.New("no")
	c := git.Commit{Edit: func(context.Context, *git.Tree) ([]git.File, error) { return nil, failed }}
	if _, err := f.repo.Preview(t.Context(), "main", c); !errors.Is(err, failed) {
		t.Errorf("error of Edit: %v", err)
	}
	// A commit that an earlier push may have brought (D2) is not shown again.
	pushed := commit("a", "1\n")
	pushed.Recorded = hashesOf(f.pushOne(t, "main", pushed).Hash)
	f.MustCommit("main", map[string]string{"a": "2\n"})
	p, err := f.repo.Preview(t.Context(), "main", pushed)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "diff", p.Diff, "")
}

func TestPreviewCost(t *testing.T) {
	f := setup(t)
	f.configure(t, "uploadpack.allowFilter", "true")
	f.MustCommit("main", map[string]string{"a/1": "1\n", "a/2": "1\n", "a/3": "1\n"})
	for _, want := range []int{1 + 1 + 1, 1} { // the list of refs, the trees, the files
		f.server.Requests()
		if _, err := f.repo.Preview(t.Context(), "main", commit("a/1", "2\n", "a/2", "2\n")); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "requests", len(f.server.Requests()), want)
	}
}
