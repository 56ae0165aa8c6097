// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// texts makes pairs of texts that resemble manifests: few different lines, which
// repeat, or many.
type texts struct {
	rand  *rand.Rand
	lines int // how many different ones there are
}

func (x texts) text(n int) []string {
	out := make([]string, n)
	for i := range out {
		if x.rand.IntN(9) > 0 {
			start := []string{"name: ", "- ", "", "value: ", "kind: x"}[x.rand.IntN(5)]
			out[i] = strings.Repeat(" ", 2*x.rand.IntN(4)) + start + fmt.Sprint(x.rand.IntN(x.lines))
		}
	}
	return out
}

func (x texts) edited(text []string, edits int) []string {
	text = slices.Clone(text)
	for range edits {
		i, n := x.rand.IntN(len(text)+1), x.rand.IntN(4)
		j := min(len(text), i+n)
		switch block := slices.Clone(text[i:j]); x.rand.IntN(4) {
		case 0:
			text = slices.Delete(text, i, j)
		case 1:
			text = slices.Insert(text, i, x.text(n)...)
		case 2:
			text = slices.Insert(text, i, block...)
		case 3:
			text = slices.Replace(text, i, j, x.text(n)...)
		}
	}
	return text
}

// hunksOf is the diff of two texts without its first lines.
func hunksOf(from, to string) string {
	p := &patch{}
	p.content("a", "b", side{mode: modeFile, data: []byte(from)}, side{mode: modeFile, data: []byte(to)})
	return strings.TrimPrefix(string(p.text), "--- a\n+++ b\n")
}

// applyHunks makes the second text from the first.
func applyHunks(t *testing.T, from, hunks string) string {
	t.Helper()
	lines, at := splitLines(from), 0
	sign := byte(0)
	var out strings.Builder
	for _, l := range splitLines(hunks) {
		switch l[0] {
		case '@':
			var start int
			if _, err := fmt.Sscanf(l, "@@ -%d", &start); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(l[:strings.Index(l, " +")], ",0") {
				start++
			}
			for ; at < start-1; at++ {
				out.WriteString(lines[at])
			}
		case '+':
			out.WriteString(l[1:])
		case '\\':
			if sign == '+' {
				text := strings.TrimSuffix(out.String(), "\n")
				out.Reset()
				out.WriteString(text)
			}
		default:
			if strings.TrimSuffix(lines[at], "\n") != strings.TrimSuffix(l[1:], "\n") {
				t.Fatalf("line %d is %q where the diff has %q", at+1, lines[at], l)
			}
			if l[0] == ' ' {
				out.WriteString(lines[at])
			}
			at++
		}
		sign = l[0]
	}
	return out.String() + strings.Join(lines[at:], "")
}

func changedLines(hunks string) int {
	return strings.Count("\n"+hunks, "\n+") + strings.Count("\n"+hunks, "\n-")
}

func TestHunksLeadFromOneTextToTheOther(t *testing.T) {
	for _, tc := range [][2]string{
		{"", "a\n"}, {"a\n", ""}, {"a", "a\n"}, {"a\n", "a"}, {"a\r\n", "a\n"}, {"\n", "\n\n"}, {"a\nb", "b\na"}, {"a\n\n\nb\n", "a\n\nb\n"},
		{strings.Repeat("x\n", 5000), strings.Repeat("x\n", 4999) + "y"},
	} {
		if got := applyHunks(t, tc[0], hunksOf(tc[0], tc[1])); got != tc[1] {
			t.Errorf("%.50q to %.50q: got %.50q\n%.200s", tc[0], tc[1], got, hunksOf(tc[0], tc[1]))
		}
	}
	if got := hunksOf("a\n", "a\n"); got != "" {
		t.Errorf("equal texts: %q", got)
	}
}

// As many lines change as in git's own diff, and mostly the same ones: git also
// leaves lines out of the comparison that are very common.
func TestHunksAreThoseOfGit(t *testing.T) {
	total, same := 0, 0
	for _, size := range []int{10, 40, 300} {
		for _, lines := range []int{2, 20, 1000} {
			for _, edits := range []int{1, 5, 30} {
				x := texts{rand.New(rand.NewPCG(uint64(size), uint64(lines))), lines} // #nosec G404
				dir, want := t.TempDir(), map[string]string{}
				for i := range 40 {
					from := x.text(1 + x.rand.IntN(size))
					a, b := strings.Join(from, "\n"), strings.Join(x.edited(from, edits), "\n")
					name := fmt.Sprintf("%03d", i)
					for side, text := range map[string]string{"a": a, "b": b} {
						if err := os.MkdirAll(filepath.Join(dir, side), 0o755); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(filepath.Join(dir, side, name), []byte(text), 0o600); err != nil {
							t.Fatal(err)
						}
					}
					hunks := hunksOf(a, b)
					if got := applyHunks(t, a, hunks); got != b {
						t.Fatalf("%q to %q: got %q\n%s", a, b, got, hunks)
					}
					want[name] = hunks
				}
				cmd := exec.CommandContext(t.Context(), "git", "diff", "--no-index", "--no-renames", "a", "b")
				cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
				out, _ := cmd.Output() // its status tells that there are differences
				for f := range strings.SplitSeq(strings.TrimPrefix(string(out), "diff --git a/a/"), "\ndiff --git a/a/") {
					name := f[:3]
					_, git, _ := strings.Cut(strings.TrimSuffix(f, "\n")+"\n", "\n+++ b/b/"+name+"\n")
					if changedLines(want[name]) > changedLines(git) {
						t.Errorf("%d lines change, in git's diff %d:\n%s\n%s", changedLines(want[name]), changedLines(git), want[name], git)
					}
					if total++; want[name] == git {
						same++
					}
				}
			}
		}
	}
	t.Logf("%d of %d diffs are those of git", same, total)
	if total < 800 || same*100 < total*99 {
		t.Errorf("%d of %d diffs are those of git, want 99%%", same, total)
	}
}

// What somebody wrote to make the search long still has a diff, if not the
// smallest.
func TestHunksOfHostileTexts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) // #nosec G404
	text := func(n, lines int) string {
		var b strings.Builder
		for range n {
			fmt.Fprintln(&b, r.IntN(lines))
		}
		return b.String()
	}
	for _, tc := range []struct{ n, lines int }{{20_000, 2}, {20_000, 1000}, {maxLineDiff / 8, 3}} {
		a, b := text(tc.n, tc.lines), text(tc.n, tc.lines)
		d := diffLines(a, b)
		var got strings.Builder
		i := 0
		for j, l := range d.to {
			for ; !d.added[j] && d.removed[i]; i++ {
			}
			if !d.added[j] {
				if d.from[i] != l {
					t.Fatalf("line %d stays as %q but was %q", j+1, l, d.from[i])
				}
				i++
			}
			got.WriteString(l)
		}
		if got.String() != b {
			t.Error("the second text is another")
		}
	}
}
