// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kommit-dev/kommit/pkg/git"
)

// node is what a path holds in a generated history.
type node struct{ mode, content string }

// generator writes a random history as git fast-import reads it.
type generator struct {
	rand   *rand.Rand
	out    strings.Builder
	states []map[string]node // by commit, from 1
	time   int
	merged int
}

var (
	directories = []string{"apps", "apps/prod", "apps/prod/a b", "apps/dev", "apps/größe", `odd"name`, "tab\there", ""}
	fileNames   = []string{"a.yaml", "b.yaml", "z z.yaml", "a", "prod", "ünï", `back\slash`, "new\nline", "bell\a", "\xff\xfe", "-dash", "a-b", "a.b"}
)

func (g *generator) pick(from []string) string { return from[g.rand.IntN(len(from))] }

func (g *generator) path() string {
	if g.rand.IntN(3) > 0 {
		return g.pick(directories[:4]) + "/" + g.pick(fileNames[:3])
	}
	return strings.TrimPrefix(g.pick(directories)+"/"+g.pick(fileNames), "/")
}

// text is like a manifest: few different lines, which repeat.
func (g *generator) text() string {
	var b strings.Builder
	for range g.rand.IntN(40) {
		b.WriteString(g.textLine())
	}
	return b.String()
}

func (g *generator) textLine() string {
	return g.pick([]string{"", "  ", "    ", "      ", "\t"}) + g.pick([]string{
		"apiVersion: v1\n", "kind: List\n", "metadata:\n", "name: x\n", "- name: y\n", "value: 1\n", "\n", "---\n", "}\n", "spec:\r\n", "name: " + strconv.Itoa(g.rand.IntN(30)) + "\n",
		"data: " + strings.Repeat("long ", g.rand.IntN(60)) + "\n",
	})
}

// edited changes some lines of a text.
func (g *generator) edited(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for range 1 + g.rand.IntN(5) {
		i := g.rand.IntN(len(lines))
		switch g.rand.IntN(5) {
		case 0:
			lines = slices.Insert(lines, i, g.textLine())
		case 1:
			lines = slices.Delete(lines, i, min(len(lines), i+1+g.rand.IntN(3)))
			if len(lines) == 0 {
				lines = []string{""}
			}
		case 2:
			lines[i] = g.textLine()
		case 3: // a block once more
			block := slices.Clone(lines[i:min(len(lines), i+4)])
			lines = slices.Insert(lines, i, block...)
		case 4:
			lines[len(lines)-1] = g.pick([]string{"", "no newline at the end", "\\ No newline at end of file"})
		}
	}
	return strings.Join(lines, "")
}

func (g *generator) node() node {
	switch g.rand.IntN(16) {
	case 0:
		return node{"120000", g.path()}
	case 1:
		return node{"160000", fmt.Sprintf("%040x", 1+g.rand.IntN(1000))}
	case 2:
		return node{"100644", "binary\x00" + g.text()}
	case 3:
		return node{"100755", g.text()}
	case 4:
		return node{"100644", ""}
	case 5:
		return node{"100644", g.text() + "caf\xe9"}
	}
	return node{"100644", g.text()}
}

// change does one thing to the tree, keeping it one that Git can hold.
func (g *generator) change(tree map[string]node) {
	paths := slices.Sorted(maps.Keys(tree))
	if len(paths) > 0 {
		p := g.pick(paths)
		n := tree[p]
		switch g.rand.IntN(8) {
		case 0:
			delete(tree, p)
			return
		case 1:
			if n.mode == "100644" {
				tree[p] = node{"100755", n.content}
			} else if n.mode == "100755" {
				tree[p] = node{"100644", g.edited(n.content)}
			}
			return
		case 2, 3, 4:
			if strings.HasPrefix(n.mode, "100") {
				tree[p] = node{n.mode, g.edited(n.content)}
			}
			return
		case 5:
			tree[p] = g.node()
			return
		}
	}
	put(tree, g.path(), g.node())
}

// put adds a file. Files and directories give way to each other.
func put(tree map[string]node, path string, n node) {
	maps.DeleteFunc(tree, func(other string, _ node) bool {
		return strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/")
	})
	tree[path] = n
}

// commit writes one commit and returns its number.
func (g *generator) commit(ref string, parents []int) int {
	tree := map[string]node{}
	if len(parents) > 0 {
		maps.Copy(tree, g.states[parents[0]-1])
	}
	for _, p := range parents[min(1, len(parents)):] {
		g.merged++
		// All of a directory as the other side has it, so that it is the same there; or
		// something of both sides.
		dir, all := g.pick(directories), g.rand.IntN(3) == 0
		if all {
			maps.DeleteFunc(tree, func(path string, _ node) bool { return strings.HasPrefix(path, dir) })
		}
		other := g.states[p-1]
		for _, path := range slices.Sorted(maps.Keys(other)) {
			if all && strings.HasPrefix(path, dir) || !all && g.rand.IntN(2) == 0 {
				put(tree, path, other[path])
			}
		}
	}
	for range g.rand.IntN(4) - len(parents)/2 {
		g.change(tree)
	}
	g.states = append(g.states, tree)
	g.time += g.rand.IntN(5) - 1 // equal times, and clocks that go wrong
	mark := len(g.states)
	message := fmt.Sprintf("Save %d\n\n  body \xc3\xa4\n\n\n", mark)
	fmt.Fprintf(&g.out, "commit %s\nmark :%d\nauthor A %d <a@example.com> %d +0130\ncommitter C <c@example.com> %d -0800\ndata %d\n%s\n",
		ref, mark, mark, 1700000000+g.time, 1700000000+g.time, len(message), message)
	for i, p := range parents {
		fmt.Fprintf(&g.out, "%s :%d\n", []string{"from", "merge"}[min(i, 1)], p)
	}
	g.out.WriteString("deleteall\n")
	for _, path := range slices.Sorted(maps.Keys(tree)) {
		n := tree[path]
		if n.mode == "160000" {
			fmt.Fprintf(&g.out, "M 160000 %s %s\n", n.content, importQuote(path))
			continue
		}
		fmt.Fprintf(&g.out, "M %s inline %s\ndata %d\n%s\n", n.mode, importQuote(path), len(n.content), n.content)
	}
	return mark
}

func importQuote(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		fmt.Fprintf(&b, `\%03o`, c)
	}
	return `"` + b.String() + `"`
}

// history makes main a random history of that many commits, some with two roots.
func (f *fixture) history(t *testing.T, seed uint64, commits int) *generator {
	t.Helper()
	g := &generator{rand: rand.New(rand.NewPCG(seed, 1))} // #nosec G404
	heads := []int{g.commit("refs/heads/side", nil)}
	for len(g.states) < commits {
		at := g.rand.IntN(len(heads))
		switch n := g.rand.IntN(12); {
		case n == 0 && len(heads) < 5:
			heads = append(heads, heads[at])
		case n == 1 && len(heads) < 5:
			g.out.WriteString("reset refs/heads/side\n\n")
			heads = append(heads, g.commit("refs/heads/side", nil))
		case n <= 4 && len(heads) > 1: // also of more than two
			parents := []int{heads[at]}
			for i, h := range heads {
				if i != at && !slices.Contains(parents, h) && (len(parents) == 1 || g.rand.IntN(2) == 0) {
					parents = append(parents, h)
				}
			}
			if len(parents) > 1 {
				heads[at] = g.commit("refs/heads/side", parents)
				if i := (at + 1) % len(heads); g.rand.IntN(2) == 0 {
					heads = slices.Delete(heads, i, i+1)
				}
			}
		default:
			heads[at] = g.commit("refs/heads/side", []int{heads[at]})
		}
	}
	parents := slices.Compact(slices.Sorted(slices.Values(heads)))
	g.commit("refs/heads/main", parents)
	g.out.WriteString("done\n")
	if err := f.Import(t.Context(), g.out.String(), "--done", "--force"); err != nil {
		t.Fatal(err)
	}
	f.Must("update-ref", "-d", "refs/heads/side")
	return g
}

// git runs the real command beside the server, with an index of its own.
func (f *fixture) git(t *testing.T, index, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"--git-dir=" + f.Dir, "--literal-pathspecs"}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_INDEX_FILE=" + index, "TZ=UTC"}
	cmd.Stdin = strings.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, errs.String())
	}
	return string(out)
}

// gitLog is the history as git itself lists it.
func (f *fixture) gitLog(t *testing.T, dir string) []string {
	t.Helper()
	return strings.Fields(f.git(t, "", "", slices.Concat([]string{"log", "--format=%H", "main", "--"}, pathspec(dir))...))
}

func pathspec(dir string) []string {
	if dir == "" {
		return nil
	}
	return []string{dir}
}

// diffTrees are the changes of commits against their first parents as git itself
// has them, by commit.
func (f *fixture) diffTrees(t *testing.T, commits []git.LoggedCommit, dir, end string, args ...string) map[string]string {
	t.Helper()
	var in strings.Builder
	for _, c := range commits {
		in.WriteString(c.Hash)
		if len(c.Parents) > 0 {
			in.WriteString(" " + c.Parents[0])
		}
		in.WriteString("\n")
	}
	args = slices.Concat([]string{"diff-tree", "--stdin", "--root", "--always", "-r", "--no-renames", "--full-index"}, args, []string{"--"}, pathspec(dir))
	out := map[string]string{}
	at := ""
	for part := range strings.SplitAfterSeq(f.git(t, "", in.String(), args...), end) {
		if hash := strings.TrimSuffix(part, end); len(hash) == 40 && strings.Trim(hash, "0123456789abcdef") == "" {
			at = hash
		} else {
			out[at] += part
		}
	}
	for h, text := range out { // between two commits git leaves a line free
		out[h] = strings.TrimPrefix(text, "\n")
	}
	return out
}

// applied is the tree that git apply makes of a commit's first parent and a diff.
func (f *fixture) applied(t *testing.T, c git.LoggedCommit, diff string) string {
	t.Helper()
	index := filepath.Join(t.TempDir(), "index")
	base := "--empty"
	if len(c.Parents) > 0 {
		base = c.Parents[0]
	}
	f.git(t, index, "", "read-tree", base)
	f.git(t, index, diff, "apply", "--cached", "--allow-empty", "--whitespace=nowarn")
	return strings.TrimSpace(f.git(t, index, "", "write-tree"))
}

func nameStatus(files []git.ChangedFile) string {
	var b strings.Builder
	for _, f := range files {
		b.WriteString(string(f.Change[0]) + "\x00" + f.Path + "\x00")
	}
	return b.String()
}

// all pages through a log.
func all(t *testing.T, r *git.Repository, o git.LogOptions) []git.LoggedCommit {
	t.Helper()
	var out []git.LoggedCommit
	for {
		l, err := r.Log(t.Context(), o)
		if err != nil {
			t.Fatalf("Log(%+v): %v", o, err)
		}
		out = append(out, l.Commits...)
		if l.Truncated {
			t.Errorf("Log(%+v) is truncated after %d", o, len(out))
		}
		if !l.More {
			return out
		}
		o.Tip, o.Skip = l.Tip, o.Skip+len(l.Commits)
	}
}

func TestLogAndShowAreThoseOfGit(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := setup(t)
			f.configure(t, "uploadpack.allowFilter", fmt.Sprint(seed%2 == 0))
			g := f.history(t, seed, 36)
			if g.merged < 3 {
				t.Fatalf("the history has only %d merges", g.merged)
			}
			listed := 0
			var commits []git.LoggedCommit
			var r *git.Repository
			for _, dir := range []string{"apps", "apps/prod", `odd"name`, "apps/prod/a b/a.yaml", "nothing", ""} {
				r = f.open(t, nil)
				commits = all(t, r, git.LogOptions{Branch: "main", Path: dir, Limit: 10 + int(seed)*20})
				want := f.diffTrees(t, commits, dir, "\x00", "--name-status", "-z")
				listed += len(commits)
				var hashes []string
				for _, c := range commits {
					hashes = append(hashes, c.Hash)
					wantEqual(t, c.Hash+" "+dir, nameStatus(c.Files), strings.ReplaceAll(want[c.Hash], "T\x00", "M\x00"))
				}
				wantEqual(t, dir, strings.Join(hashes, "\n"), strings.Join(f.gitLog(t, dir), "\n"))
			}
			if listed -= len(commits); listed < 15 {
				t.Fatalf("the directories have only %d commits between them", listed)
			}

			for _, dir := range []string{"", "apps"} {
				want := f.diffTrees(t, commits, dir, "\n", "-p")
				for i, c := range commits {
					got, err := r.Show(t.Context(), c.Hash, dir)
					if err != nil {
						t.Fatal(err)
					}
					wantEqual(t, c.Hash, got.Diff, want[c.Hash])
					wantEqual(t, c.Hash+" truncated", got.Truncated, false)
					if dir == "" {
						wantEqual(t, c.Hash, fmt.Sprint(got.LoggedCommit), fmt.Sprint(c))
					}
					if dir == "" && i%4 == 0 {
						wantEqual(t, "applied "+c.Hash, f.applied(t, c, got.Diff), f.Must("rev-parse", c.Hash+"^{tree}"))
					}
				}
			}
		})
	}
}

func (f *fixture) configure(t *testing.T, key, value string) {
	t.Helper()
	if err := f.Configure(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}
