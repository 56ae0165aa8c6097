// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kommit-dev/kommit/pkg/git"
)

// hashesOf are recorded commits of which nobody knows what they were made on.
func hashesOf(hashes ...string) []git.Recorded {
	var all []git.Recorded
	for _, hash := range hashes {
		all = append(all, git.Recorded{Hash: hash})
	}
	return all
}

// bury puts commits by others onto main.
func (f *fixture) bury(t *testing.T, commits int) {
	t.Helper()
	var in strings.Builder
	for n := range commits {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter C <c@example.com> %d +0000\ndata 0\n", 1800000000+n)
		if n == 0 {
			fmt.Fprintf(&in, "from %s\n", f.MustHead("main"))
		}
		fmt.Fprintf(&in, "M 100644 inline theirs\ndata %d\n%d\n", len(fmt.Sprint(n)), n)
	}
	if err := f.Import(t.Context(), in.String()); err != nil {
		t.Fatal(err)
	}
}

// D2: however many commits have come onto a recorded one, it is found; and one that is
// not there is known not to be, without the past before it being read.
func TestD2RecordedCommitsAreFoundHoweverDeep(t *testing.T) {
	for name, filter := range map[string]string{"the remote can leave out trees": "true", "the remote cannot": "false"} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.configure(t, "uploadpack.allowFilter", filter)
			f.linear(t, 1200, 100)
			before := f.MustHead("main")
			landed := f.pushOne(t, "main", commit("a", "1\n"))
			wantEqual(t, "made on", landed.Onto, before)
			f.bury(t, 1100)
			head := f.MustHead("main")

			again := commit("a", "1\n")
			again.Recorded = []git.Recorded{{Hash: strings.Repeat("1", 40), Onto: before}, {Hash: landed.Hash, Onto: landed.Onto}}
			f.repo = f.open(t, nil)
			wantEqual(t, "hash", f.pushOne(t, "main", again).Hash, landed.Hash)
			wantEqual(t, "head", f.MustHead("main"), head)

			other := commit("b", "1\n")
			other.Recorded = []git.Recorded{{Hash: strings.Repeat("2", 40), Onto: before}}
			f.repo = f.open(t, nil)
			made := f.pushOne(t, "main", other)
			wantEqual(t, "head", f.MustHead("main"), made.Hash)

			// Where the branch has not moved, nothing is read at all.
			next := commit("c", "1\n")
			next.Recorded = []git.Recorded{{Hash: strings.Repeat("3", 40), Onto: made.Hash}}
			f.pushOne(t, "main", next)
		})
	}
}

// A branch that was not there has all of its past above.
func TestD2RecordedCommitsOfANewBranch(t *testing.T) {
	f := setup(t)
	first := f.pushOne(t, "main", commit("a", "1\n"))
	wantEqual(t, "made on", first.Onto, strings.Repeat("0", 40))
	f.bury(t, 120)
	again := commit("a", "1\n")
	again.Recorded = []git.Recorded{{Hash: first.Hash, Onto: first.Onto}}
	f.repo = f.open(t, nil)
	wantEqual(t, "hash", f.pushOne(t, "main", again).Hash, first.Hash)
}

// The answers to two pushes were lost, and others came between: what the first brought
// lies below what the second was made on.
func TestD2RecordedCommitsOfSeveralPushesAreFound(t *testing.T) {
	f := setup(t)
	base := f.MustCommit("main", map[string]string{"README": "hello\n"})
	first := f.pushOne(t, "main", commit("a", "1\n"))
	tip := f.MustCommit("main", map[string]string{"a": "changed by somebody\n"})
	second := f.pushOne(t, "main", commit("b", "1\n"))
	head := f.MustHead("main")

	f.repo = f.open(t, nil)
	one, two := commit("a", "1\n"), commit("b", "1\n")
	one.Recorded = []git.Recorded{{Hash: first.Hash, Onto: base}}
	two.Recorded = []git.Recorded{{Hash: second.Hash, Onto: tip}}
	three := commit("c", "1\n")
	three.Recorded = []git.Recorded{{Hash: strings.Repeat("1", 40), Onto: tip}}
	built := f.push(t, "main", one, two, three)
	wantEqual(t, "first", built[0].Hash, first.Hash)
	wantEqual(t, "second", built[1].Hash, second.Hash)
	wantEqual(t, "parent", f.Must("rev-parse", "main^"), head)
}
