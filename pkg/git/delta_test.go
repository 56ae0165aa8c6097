// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"pgregory.net/rapid"
)

// directory is a tree of n files, every tenth of them a directory.
func directory(n int) []treeEntry {
	entries := make([]treeEntry, n)
	for i := range entries {
		entries[i] = treeEntry{mode: modeFile, name: fmt.Sprintf("settings-%05d.yaml", i), hash: plumbing.ComputeHash(plumbing.BlobObject, fmt.Append(nil, i))}
		if i%10 == 0 {
			entries[i].mode = modeTree
		}
	}
	return entries
}

func TestDeltaOfATreeCostsWhatChanged(t *testing.T) {
	const size = 20_000
	other := plumbing.Hash{7}
	for name, change := range map[string]func([]treeEntry) []treeEntry{
		"nothing":      func(e []treeEntry) []treeEntry { return e },
		"one replaced": func(e []treeEntry) []treeEntry { e[9_999].hash = other; return e },
		"the first":    func(e []treeEntry) []treeEntry { e[0].hash = other; return e },
		"the last":     func(e []treeEntry) []treeEntry { e[size-1].hash = other; return e },
		"another mode": func(e []treeEntry) []treeEntry { e[17].mode = "100755"; return e },
		"one added": func(e []treeEntry) []treeEntry {
			return slices.Insert(e, 12, treeEntry{modeFile, e[11].name + ".new", other})
		},
		"one at an end": func(e []treeEntry) []treeEntry { return append(e, treeEntry{modeFile, "z", other}) },
		"one removed":   func(e []treeEntry) []treeEntry { return slices.Delete(e, 4_000, 4_001) },
		"a directory where a file was": func(e []treeEntry) []treeEntry {
			e[11].mode = modeTree
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			base, target := encodeTree(directory(size)), encodeTree(change(directory(size)))
			d, ok := delta(base, target)
			if !ok {
				t.Fatal("no delta")
			}
			if got, err := packfile.PatchDelta(base.data, d); err != nil || !bytes.Equal(got, target.data) {
				t.Fatalf("the delta does not give the target: %v", err)
			}
			if len(d) > 400 {
				t.Errorf("%d bytes for a tree of %d", len(d), len(target.data))
			}
		})
	}
}

func TestDeltaOfAFileKeepsItsEnds(t *testing.T) {
	base := object{plumbing.BlobObject, []byte(strings.Repeat("some: line\n", 20_000))}
	for name, data := range map[string]string{
		"in the middle": strings.Repeat("some: line\n", 9_000) + "another: line\n" + strings.Repeat("some: line\n", 11_000),
		"at the start":  "---\n" + string(base.data),
		"at the end":    string(base.data) + "end: true\n",
		"cut":           string(base.data[:100_000]),
		"the same":      string(base.data),
	} {
		t.Run(name, func(t *testing.T) {
			target := object{plumbing.BlobObject, []byte(data)}
			d, ok := delta(base, target)
			if !ok || len(d) > 60 {
				t.Fatalf("%d bytes, %t", len(d), ok)
			}
			if got, err := packfile.PatchDelta(base.data, d); err != nil || string(got) != data {
				t.Errorf("the delta does not give the target: %v", err)
			}
		})
	}
}

func TestDeltaOnlyWhereItPays(t *testing.T) {
	blob := func(s string) object { return object{plumbing.BlobObject, []byte(s)} }
	long := strings.Repeat("0123456789", 1000)
	for name, tc := range map[string][2]object{
		"a small object":    {blob("a: 1\n"), blob("a: 2\n")},
		"nothing in common": {blob(long), blob(strings.Repeat("abc", 4000))},
		"an empty base":     {blob(""), blob(long)},
		"another kind":      {encodeTree(directory(100)), blob(long)},
		"another directory": {encodeTree(directory(100)), encodeTree(directory(1000)[500:])},
	} {
		if d, ok := delta(tc[0], tc[1]); ok {
			t.Errorf("%s: a delta of %d bytes", name, len(d))
		}
	}
}

// Whatever trees it is given, in order or not, a delta gives the target or is not
// made.
func TestDeltaGivesTheTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := directory(rapid.IntRange(0, 300).Draw(t, "entries"))
		base := encodeTree(entries)
		for range rapid.IntRange(0, 20).Draw(t, "changes") {
			if len(entries) == 0 {
				break
			}
			at := rapid.IntRange(0, len(entries)-1).Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				entries = slices.Delete(entries, at, at+1)
			case 1:
				entries[at].hash[0]++
			case 2:
				entries = slices.Insert(entries, at, treeEntry{modeTree, rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "name"), plumbing.Hash{1}})
			case 3:
				entries[at].mode = rapid.SampledFrom([]string{modeFile, modeTree, "100755", "160000"}).Draw(t, "mode")
			}
		}
		target := encodeTree(entries)
		if rapid.Bool().Draw(t, "as a file") {
			base.kind, target.kind = plumbing.BlobObject, plumbing.BlobObject
		}
		d, ok := delta(base, target)
		if !ok {
			return
		}
		if got, err := packfile.PatchDelta(base.data, d); err != nil || !bytes.Equal(got, target.data) {
			t.Fatalf("the delta does not give the target: %v", err)
		}
	})
}
