// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// Names such as kratix#850 are public reports of the same thing done wrong, by
// project and number; IAC is fluxcd/image-automation-controller.

func TestFirstCommitOfEmptyRepository(t *testing.T) { // grafana#105392, flux2#634
	f := setup(t)
	b := f.pushOne(t, "main", commit("ns/configmaps/a.yaml", "a: 1\n"))
	wantEqual(t, "head", f.MustHead("main"), b.Hash)
	wantEqual(t, "content", f.MustShow("main", "ns/configmaps/a.yaml"), "a: 1\n")
	wantEqual(t, "parents", f.Must("show", "-s", "--format=%P", "main"), "")
	if diff := cmp.Diff([]string{"ns/configmaps/a.yaml"}, b.Changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

func TestHeadPointsToMissingBranch(t *testing.T) { // flux2#1014, flux2#4338
	f := setup(t)
	f.MustCommit("main", map[string]string{"README": "hello\n"})
	f.Must("symbolic-ref", "HEAD", "refs/heads/nope")
	b := f.pushOne(t, "main", commit("a.yaml", "a: 1\n"))
	wantEqual(t, "head", f.MustHead("main"), b.Hash)
}

func TestBranchIsCreated(t *testing.T) { // gitea#1685: a slash in the name
	f := setup(t)
	main := f.MustCommit("main", map[string]string{"README": "hello\n"})
	b := f.pushOne(t, "feature/x", commit("a.yaml", "a: 1\n"))
	wantEqual(t, "head", f.MustHead("feature/x"), b.Hash)
	wantEqual(t, "parents", f.Must("show", "-s", "--format=%P", b.Hash), "")
	wantEqual(t, "main", f.MustHead("main"), main)
}

func TestC10CommitSaysWhoAndWhen(t *testing.T) {
	f := setup(t)
	f.pushOne(t, "main", commit("a.yaml", "a: 1\n"))
	wantEqual(t, "commit", f.Must("cat-file", "commit", "main"), "tree "+f.Must("rev-parse", "main^{tree}")+`
author alice <alice@example.com> 1767319445 +0000
committer kommit <kommit@example.com> 1767319445 +0000

Save`)
}

func TestC10IdentitiesAndMessagesAreMadeSafe(t *testing.T) { // jx#4943, kargo#2700
	for _, tc := range []struct {
		name, email, message   string
		wantAuthor, wantPerson string
		wantMessage            string
	}{
		{"eve\nparent 0000000000000000000000000000000000000000", "e@x\ncommitter z", "m", "eve parent 0000000000000000000000000000000000000000", "e@xcommitterz", "m"},
		{"a<b>c", "<a@b>", "m", "a b c", "a@b", "m"},
		{"", "bob@example.com", "m", "bob", "bob@example.com", "m"},
		{"carol", "", "m", "carol", "unknown@kommit.invalid", "m"},
		{"", "", "m", "unknown", "unknown@kommit.invalid", "m"},
		{"system:serviceaccount:ns:x", "ns.x@serviceaccount.example.com", "m", "system:serviceaccount:ns:x", "ns.x@serviceaccount.example.com", "m"},
		{"Zoë Ünïcode 山田", "z@example.com", "Grüße\n\n# not a comment\n山", "Zoë Ünïcode 山田", "z@example.com", "Grüße\n\n# not a comment\n山"},
		{"n\x00ul\x1b[31m", "n\x00@x", "a\x00b\r\nc\x07\td\xff", "n ul [31m", "n@x", "ab\nc\td\uFFFD"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := setup(t)
			c := commit("a.yaml", "a: 1\n")
			c.Author = git.Signature{Name: tc.name, Email: tc.email, When: closedAt}
			c.Message = func([]string) string { return tc.message }
			f.pushOne(t, "main", c)
			wantEqual(t, "author", f.Must("show", "-s", "--format=%an", "main"), tc.wantAuthor)
			wantEqual(t, "email", f.Must("show", "-s", "--format=%ae", "main"), tc.wantPerson)
			wantEqual(t, "committer", f.Must("show", "-s", "--format=%cn <%ce>", "main"), "kommit <kommit@example.com>")
			wantEqual(t, "parents", f.Must("show", "-s", "--format=%P", "main"), "")
			_, message, _ := strings.Cut(f.Must("cat-file", "commit", "main"), "\n\n")
			wantEqual(t, "message", message, tc.wantMessage)
		})
	}
}

func TestG1OnlyTheTreesOnTheChangedPathAreSent(t *testing.T) {
	f := setup(t)
	files := map[string]string{}
	for i := range 50 {
		for j := range 10 {
			files[fmt.Sprintf("d%02d/f%02d", i, j)] = fmt.Sprintf("%d/%d\n", i, j)
		}
	}
	before := f.MustCommit("main", files)
	b := f.pushOne(t, "main", commit("d07/f03", "changed\n"))
	sent := strings.Fields(f.Must("rev-list", "--objects", b.Hash, "^"+before))
	// The commit, the root, d07, the file; and the three paths that rev-list prints.
	if got := len(sent) - 2; got != 4 {
		t.Errorf("%d new objects, want 4: %q", got, sent)
	}
	wantEqual(t, "changed", f.Must("diff", "--name-only", before, b.Hash), "d07/f03")
}

func TestG2WarmPushIsTwoRequests(t *testing.T) {
	f := setup(t)
	f.MustCommit("main", map[string]string{"README": "hello\n"})
	f.pushOne(t, "main", commit("ns/a.yaml", "a: 1\n"))
	f.server.Requests()
	f.pushOne(t, "main", commit("ns/a.yaml", "a: 2\n"))
	if diff := cmp.Diff([]gitserver.Request{
		{Method: "GET", Path: "/repo.git/info/refs?service=git-receive-pack", Status: 200},
		{Method: "POST", Path: "/repo.git/git-receive-pack", Status: 200},
	}, f.server.Requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestG3ReplayOnAMovedBranch(t *testing.T) { // kratix#850, IAC#365
	f := setup(t)
	f.MustCommit("main", map[string]string{"ns/a.yaml": "a: 1\n", "README": "hello\n"})
	f.pushOne(t, "main", commit("ns/b.yaml", "b: 1\n"))
	foreign := f.MustCommit("main", map[string]string{"ns/c.yaml": "c: 1\n", "README": "moved\n", "ns/a.yaml": ""})
	b := f.pushOne(t, "main", commit("ns/b.yaml", "b: 2\n"))
	wantEqual(t, "head", f.MustHead("main"), b.Hash)
	wantEqual(t, "parent", f.Must("rev-parse", "main^"), foreign)
	wantEqual(t, "files", f.Must("ls-tree", "-r", "--name-only", "main"), "README\nns/b.yaml\nns/c.yaml")
	wantEqual(t, "README", f.MustShow("main", "README"), "moved\n")
}

// The branch moves after the advertisement was read: the compare-and-swap of the
// remote refuses, and the edit is executed again on what is there then.
func TestG3ReplayAfterALostRace(t *testing.T) {
	f := setup(t)
	f.MustCommit("main", map[string]string{"n.yaml": "n: 1\n"})
	foreign := ""
	c := commit()
	edits := 0
	c.Edit = func(ctx context.Context, tree *git.Tree) ([]git.File, error) {
		edits++
		now, err := tree.Read(ctx, "n.yaml")
		if err != nil {
			return nil, err
		}
		if edits == 1 {
			foreign = f.MustCommit("main", map[string]string{"n.yaml": "n: 2\n"})
		}
		return []git.File{{Path: "n.yaml", Content: append(now, "ours: true\n"...)}}, nil
	}
	var recorded [][]git.Built
	built, err := f.repo.Push(t.Context(), "main", []git.Commit{c}, func(b []git.Built) error {
		recorded = append(recorded, slices.Clone(b))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "edits", edits, 2)
	wantEqual(t, "head", f.MustHead("main"), built[0].Hash)
	wantEqual(t, "parent", f.Must("rev-parse", "main^"), foreign)
	wantEqual(t, "content", f.MustShow("main", "n.yaml"), "n: 2\nours: true\n")
	wantEqual(t, "times recorded", len(recorded), 2)
	wantEqual(t, "recorded last", recorded[1][0].Hash, built[0].Hash)
	if recorded[0][0].Hash == built[0].Hash {
		t.Error("the replayed commit has the hash of the first one")
	}
}

func TestG3ReplayOnARewrittenBranch(t *testing.T) { // IAC#450: force-pushed, also back to an ancestor
	f := setup(t)
	first := f.MustCommit("main", map[string]string{"a": "1\n"})
	f.pushOne(t, "main", commit("b", "1\n"))
	f.Must("update-ref", "refs/heads/main", first)
	f.pushOne(t, "main", commit("c", "1\n"))
	wantEqual(t, "parent", f.Must("rev-parse", "main^"), first)
	wantEqual(t, "files", f.Must("ls-tree", "-r", "--name-only", "main"), "a\nc")
	f.Must("update-ref", "-d", "refs/heads/main")
	b := f.pushOne(t, "main", commit("d", "1\n"))
	wantEqual(t, "head", f.MustHead("main"), b.Hash)
	wantEqual(t, "files", f.Must("ls-tree", "-r", "--name-only", "main"), "d")
}

func TestErrMovedWhenTheReplaysAreUsedUp(t *testing.T) {
	f := setup(t)
	n := 0
	c := commit()
	c.Edit = func(context.Context, *git.Tree) ([]git.File, error) {
		n++
		f.MustCommit("main", map[string]string{"foreign": fmt.Sprintln(n)})
		return []git.File{{Path: "ours", Content: []byte("1\n")}}, nil
	}
	_, err := f.repo.Push(t.Context(), "main", []git.Commit{c}, nil)
	if !errors.Is(err, git.ErrMoved) {
		t.Fatalf("error %v, want ErrMoved", err)
	}
	wantEqual(t, "attempts", n, 6)
	wantEqual(t, "files", f.Must("ls-tree", "-r", "--name-only", "main"), "foreign")
}

func TestG5SameInputSameHash(t *testing.T) {
	f, g := setup(t), setup(t)
	wantEqual(t, "hash", f.pushOne(t, "main", commit("a", "1\n")).Hash, g.pushOne(t, "main", commit("a", "1\n")).Hash)
}

func TestG6BatchIsOnePush(t *testing.T) {
	f := setup(t)
	var commits []git.Commit
	for i := range 40 {
		commits = append(commits, commit(fmt.Sprintf("d/%d.yaml", i), "x: 1\n", "last.yaml", fmt.Sprintf("n: %d\n", i)))
	}
	built := f.push(t, "main", commits...)
	wantEqual(t, "pushes", f.posts(t), 1)
	wantEqual(t, "commits", f.count(t, "main"), 40)
	wantEqual(t, "head", f.MustHead("main"), built[39].Hash)
	log, _ := f.Log(t.Context(), "main", "--reverse", "--format=%H")
	for i, h := range strings.Fields(log) {
		wantEqual(t, fmt.Sprintf("commit %d", i), h, built[i].Hash)
	}
}

func TestEachCommitOfABatchSeesTheOneBefore(t *testing.T) {
	f := setup(t)
	grow := commit()
	grow.Edit = func(ctx context.Context, tree *git.Tree) ([]git.File, error) {
		now, err := tree.Read(ctx, "d/log")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return []git.File{{Path: "d/log", Content: append(slices.Clone(now), "x\n"...)}}, nil
	}
	f.push(t, "main", grow, grow, grow)
	wantEqual(t, "content", f.MustShow("main", "d/log"), "x\nx\nx\n")
}

func TestFailedCommitLeavesTheOthers(t *testing.T) {
	f := setup(t)
	boom := errors.New("cannot be built")
	bad := commit()
	bad.Edit = func(context.Context, *git.Tree) ([]git.File, error) { return nil, boom }
	half := commit("x/ok", "1\n", "y/.git/config", "1\n")
	built := f.push(t, "main", commit("a", "1\n"), bad, half, commit("b", "1\n"))
	if !errors.Is(built[1].Err, boom) || built[1].Hash != "" {
		t.Errorf("failed commit: %+v", built[1])
	}
	var invalid *git.InvalidError
	if !errors.As(built[2].Err, &invalid) || invalid.Subject != "path" {
		t.Errorf("commit with a bad path: %+v", built[2])
	}
	wantEqual(t, "commits", f.count(t, "main"), 2)
	wantEqual(t, "files", f.Must("ls-tree", "-r", "--name-only", "main"), "a\nb")
}

func TestAllCommitsFailedSendsNothing(t *testing.T) {
	f := setup(t)
	bad := commit("../x", "1\n")
	built, err := f.repo.Push(t.Context(), "main", []git.Commit{bad}, func([]git.Built) error {
		t.Error("record was called with nothing to send")
		return nil
	})
	if err != nil || built[0].Err == nil {
		t.Fatalf("built %+v, error %v", built, err)
	}
	wantEqual(t, "pushes", f.posts(t), 0)
}

func TestNothingToCommitIsNoPush(t *testing.T) { // kuberpult 502ee551c, fleet#2341
	f := setup(t)
	head := f.MustCommit("main", map[string]string{"ns/a.yaml": "a: 1\n"})
	for name, c := range map[string]git.Commit{
		"the same bytes":      commit("ns/a.yaml", "a: 1\n"),
		"removal of nothing":  commit("ns/b.yaml", "", "other/c.yaml", "", "ns/a.yaml/x", ""),
		"no files":            commit(),
		"no edit":             {},
		"there and back":      commit("ns/a.yaml", "a: 2\n", "ns/a.yaml", "a: 1\n"),
		"a new, empty nested": commit("x/y/z.yaml", ""),
	} {
		t.Run(name, func(t *testing.T) {
			b := f.pushOne(t, "main", c)
			wantEqual(t, "hash", b.Hash, "")
			wantEqual(t, "changed", len(b.Changed), 0)
			wantEqual(t, "pushes", f.posts(t), 0)
			wantEqual(t, "head", f.MustHead("main"), head)
		})
	}
}

func TestAllowEmpty(t *testing.T) { // W14
	f := setup(t)
	c := commit()
	c.AllowEmpty = true
	first := f.pushOne(t, "main", c)
	wantEqual(t, "tree of the first", f.Must("ls-tree", "-r", "main"), "")
	f.pushOne(t, "main", commit("a", "1\n"))
	second := f.pushOne(t, "main", c)
	wantEqual(t, "head", f.MustHead("main"), second.Hash)
	wantEqual(t, "files", f.Must("ls-tree", "-r", "--name-only", "main"), "a")
	if first.Hash == "" || len(second.Changed) != 0 {
		t.Errorf("first %+v, second %+v", first, second)
	}
}

func TestMessageIsToldWhatReallyChanged(t *testing.T) {
	f := setup(t)
	f.MustCommit("main", map[string]string{"same": "1\n", "other": "1\n"})
	c := commit("z", "1\n", "same", "1\n", "other", "2\n", "gone", "")
	c.Message = func(changed []string) string { return strings.Join(changed, ",") }
	b := f.pushOne(t, "main", c)
	wantEqual(t, "message", f.Must("show", "-s", "--format=%B", "main"), "z,other\n")
	if diff := cmp.Diff([]string{"z", "other"}, b.Changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

func TestD2HashesAreRecordedBeforeTheyAreSent(t *testing.T) {
	f := setup(t)
	var recorded string
	built, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("a", "1\n"), commit("a", "1\n")}, func(b []git.Built) error {
		wantEqual(t, "branch while recording", f.MustHead("main"), "")
		wantEqual(t, "pushes while recording", f.posts(t), 0)
		recorded = b[0].Hash
		wantEqual(t, "hash of nothing", b[1].Hash, "")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "hash", built[0].Hash, recorded)
	wantEqual(t, "head", f.MustHead("main"), recorded)
}

func TestD2FailedRecordSendsNothing(t *testing.T) {
	f := setup(t)
	full := errors.New("disk full")
	_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("a", "1\n")}, func([]git.Built) error { return full })
	if !errors.Is(err, full) {
		t.Fatalf("error %v", err)
	}
	wantEqual(t, "pushes", f.posts(t), 0)
	wantEqual(t, "head", f.MustHead("main"), "")
}

// After a restart the hashes that were recorded decide, not whether the files
// look right.
func TestD2RecordedCommitsThatLandedAreNotMadeAgain(t *testing.T) {
	f := setup(t)
	base := f.MustCommit("main", map[string]string{"README": "hello\n"})
	landed := f.pushOne(t, "main", commit("a", "1\n"))
	f.MustCommit("main", map[string]string{"a": "changed by somebody\n"})
	head := f.MustCommit("main", map[string]string{"foreign": "2\n"})

	again := commit("a", "1\n")
	again.Recorded = hashesOf(strings.Repeat("1", 40), landed.Hash)
	f.repo = f.open(t, nil)
	f.server.Requests()
	b := f.pushOne(t, "main", again)
	wantEqual(t, "hash", b.Hash, landed.Hash)
	wantEqual(t, "pushes", f.posts(t), 0)
	wantEqual(t, "head", f.MustHead("main"), head)

	// One that did not land is made, beside one that did.
	other := commit("b", "1\n")
	other.Recorded = hashesOf(strings.Repeat("2", 40))
	built := f.push(t, "main", again, other)
	wantEqual(t, "first", built[0].Hash, landed.Hash)
	wantEqual(t, "head", f.MustHead("main"), built[1].Hash)
	wantEqual(t, "parent", f.Must("rev-parse", "main^"), head)
	if f.Must("merge-base", base, "main") != base {
		t.Error("the base is not an ancestor any more")
	}
}

func TestG7BranchesRunInParallel(t *testing.T) { // kratix#454, porch#282: one store, many users
	f := setup(t)
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprintf("d%d/f", i)] = fmt.Sprintln(i)
	}
	f.MustCommit("main", files)
	for i := range 8 {
		f.Must("branch", fmt.Sprintf("b%d", i), "main")
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			branch := fmt.Sprintf("b%d", i)
			for n := range 3 {
				built, err := f.repo.Push(t.Context(), branch, []git.Commit{commit(fmt.Sprintf("d%d/f", i), fmt.Sprintf("%d.%d\n", i, n))}, nil)
				if err != nil || built[0].Hash == "" {
					t.Errorf("%s: %+v, %v", branch, built, err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		branch := fmt.Sprintf("b%d", i)
		wantEqual(t, branch, f.MustShow(branch, fmt.Sprintf("d%d/f", i)), fmt.Sprintf("%d.2\n", i))
		wantEqual(t, branch, f.count(t, branch), 4)
	}
}

func TestPushersOfOneBranchLoseNothing(t *testing.T) { // argo-cd#25727
	f := setup(t)
	var wg sync.WaitGroup
	for i := range 3 {
		repo := f.open(t, nil)
		wg.Go(func() {
			if _, err := repo.Push(t.Context(), "main", []git.Commit{commit(fmt.Sprintf("f%d", i), "1\n")}, nil); err != nil {
				t.Errorf("pusher %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	wantEqual(t, "files", f.Must("ls-tree", "-r", "--name-only", "main"), "f0\nf1\nf2")
	wantEqual(t, "commits", f.count(t, "main"), 3)
}
