// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kommit-dev/kommit/pkg/git"
)

// Whatever a user is called and writes, the commit has the headers that it should
// have and no others. Compared is the hash of the whole object.
func TestC9NothingForgesAHeader(t *testing.T) {
	const at = " 1767319445 +0000\n"
	f := setup(t)
	empty := f.MustWrite("tree", "")
	for name, tc := range map[string]struct {
		author, committer git.Signature
		message           string
		want              string // after the tree and the parent
	}{
		"a header after the author's name": {
			git.Signature{Name: "eve\nparent 1111111111111111111111111111111111111111", Email: "eve@example.com"}, git.Signature{Name: "kommit", Email: "k@example.com"}, "m\n",
			"author eve parent 1111111111111111111111111111111111111111 <eve@example.com>" + at + "committer kommit <k@example.com>" + at + "\nm\n",
		},
		"a signature after the committer's e-mail": {
			git.Signature{Name: "eve", Email: "eve@example.com"}, git.Signature{Name: "kommit", Email: "k@example.com>\ngpgsig x"}, "m\n",
			"author eve <eve@example.com>" + at + "committer kommit <k@example.comgpgsigx>" + at + "\nm\n",
		},
		"the message in the name": {
			git.Signature{Name: "eve\n\nI am the message", Email: "e@x"}, git.Signature{Name: "k\r\n\r\nm", Email: "k@x"}, "m\n",
			"author eve I am the message <e@x>" + at + "committer k m <k@x>" + at + "\nm\n",
		},
		"line breaks of Unicode": {
			git.Signature{Name: "a\u2028b\u2029c\u0085d\vf", Email: "e\u2028@\u0085x"}, git.Signature{Name: "k", Email: "k@x"}, "m\n",
			"author a b c d f <e@x>" + at + "committer k <k@x>" + at + "\nm\n",
		},
		"somebody else's address": {
			git.Signature{Name: "eve <admin@example.com> 1 +0000", Email: "eve@x> 0 +0000 <admin@x"}, git.Signature{Name: "k", Email: "k@x"}, "m\n",
			"author eve admin@example.com 1 +0000 <eve@x0+0000admin@x>" + at + "committer k <k@x>" + at + "\nm\n",
		},
		"NUL everywhere": {
			git.Signature{Name: "a\x00b", Email: "\x00e@x"}, git.Signature{Name: "\x00", Email: "\x00"}, "a\x00b\x00\n",
			"author a b <e@x>" + at + "committer unknown <unknown@kommit.invalid>" + at + "\nab\n",
		},
		"headers in the message stay the message": {
			git.Signature{Name: "a", Email: "e@x"}, git.Signature{Name: "k", Email: "k@x"}, "parent 1111111111111111111111111111111111111111\n\nauthor x\n",
			"author a <e@x>" + at + "committer k <k@x>" + at + "\nparent 1111111111111111111111111111111111111111\n\nauthor x\n",
		},
		"# is no comment": {
			git.Signature{Name: "a", Email: "e@x"}, git.Signature{Name: "k", Email: "k@x"}, "# one\n#two\n\n  # three\n",
			"author a <e@x>" + at + "committer k <k@x>" + at + "\n# one\n#two\n\n  # three\n",
		},
		"the last line gets its end": {
			git.Signature{Name: "a", Email: "e@x"}, git.Signature{Name: "k", Email: "k@x"}, "one\r\n\r\ntwo",
			"author a <e@x>" + at + "committer k <k@x>" + at + "\none\n\ntwo\n",
		},
		"no message": {
			git.Signature{Name: "a", Email: "e@x"}, git.Signature{Name: "k", Email: "k@x"}, "",
			"author a <e@x>" + at + "committer k <k@x>" + at + "\n",
		},
		"letters of all scripts": {
			git.Signature{Name: "Zoë Ünïcode 山田 👩‍🚀", Email: "zoë@exämple.com"}, git.Signature{Name: "k", Email: "k@x"}, "Grüße 👩‍🚀\n",
			"author Zoë Ünïcode 山田 👩‍🚀 <zoë@exämple.com>" + at + "committer k <k@x>" + at + "\nGrüße 👩‍🚀\n",
		},
		"bytes that are no text": {
			git.Signature{Name: "a\xff\xfeb", Email: "e\xff@x"}, git.Signature{Name: "k", Email: "k@x"}, "a\xffb\n",
			"author a\uFFFDb <e@x>" + at + "committer k <k@x>" + at + "\na\uFFFDb\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.author.When, tc.committer.When = closedAt, closedAt
			c := git.Commit{Author: tc.author, Committer: tc.committer, AllowEmpty: true, Message: func([]string) string { return tc.message }}
			built := f.pushOne(t, strings.NewReplacer(" ", "-", "'", "", "#", "x").Replace(name), c)
			wantEqual(t, "hash", built.Hash, f.MustWrite("commit", "tree "+empty+"\n"+tc.want))
		})
	}
}

func TestTimesBeforeGitAreItsFirst(t *testing.T) {
	f := setup(t)
	c := commit("a.yaml", "a: 1\n")
	c.Author.When, c.Committer.When = time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}
	f.pushOne(t, "main", c)
	wantEqual(t, "times", f.Must("show", "-s", "--format=%at %ct", "main"), "0 0")
}

// Names that git takes as branches, and then for something else, get no request.
func TestC9OddBranchesReachNoServer(t *testing.T) {
	f := setup(t)
	f.MustCommit("main", map[string]string{"README": "1\n"})
	f.server.Requests()
	for _, branch := range []string{"-x", "--upload-pack=x", "@", "HEAD", "refs/heads/main", "", "a..b", "a\nb", "a\x00b", "main ", "x.lock", "@{-1}", "main^{tree}"} {
		_, push := f.repo.Push(t.Context(), branch, []git.Commit{commit("a.yaml", "a: 1\n")}, nil)
		_, tree := f.repo.Tree(t.Context(), branch)
		_, preview := f.repo.Preview(t.Context(), branch, commit("a.yaml", "a: 1\n"))
		for _, err := range []error{push, tree, preview} {
			wantInvalid(t, "branch", branch, err)
		}
	}
	wantEqual(t, "requests", fmt.Sprint(f.server.Requests()), "[]")
}

// What some file system takes for .git is in no commit; the others of the batch are.
func TestC9GitLookAlikesAreInNoCommit(t *testing.T) {
	f := setup(t)
	paths := []string{
		".git", ".GIT", ".git/config", "a/.Git/hooks/post-checkout", "git~1", "GIT~1/config", ".git.", ".git ", ".git::$INDEX_ALLOCATION",
		"\u200c.git", ".g\u200dit/config", ".gi\u202et\ufeff", "..", "a/../b", "./a", "a//b", "/etc/passwd", "a\x00b", "a\nb", `..\b`, ".gitmodules", "",
	}
	commits := []git.Commit{commit("a.yaml", "a: 1\n")}
	for _, path := range paths {
		commits = append(commits, commit(path, "x: 1\n", "b.yaml", "b: 1\n"))
	}
	commits = append(commits, commit("c.yaml", "c: 1\n"))
	for i, built := range f.push(t, "main", commits...) {
		if i == 0 || i == len(commits)-1 {
			if built.Err != nil {
				t.Errorf("commit %d: %v", i, built.Err)
			}
			continue
		}
		if invalid, ok := errors.AsType[*git.InvalidError](built.Err); !ok || invalid.Subject != "path" || built.Hash != "" {
			t.Errorf("%q: %+v", paths[i-1], built)
		}
	}
	if diff := cmp.Diff([]string{"a.yaml", "c.yaml"}, strings.Fields(f.Must("ls-tree", "-r", "--name-only", "main"))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
