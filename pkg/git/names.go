// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// fewNames is up to how many names are looked for one after the other: to know all
// of a directory costs as much as some passes over it.
const fewNames = 16

// lookInto returns what finds an entry of a tree and where it starts, the zero
// entry for one that is not there, for so many names.
func lookInto(tree []byte, names int) (func(name string) (treeEntry, int, error), error) {
	if names <= fewNames {
		return func(name string) (treeEntry, int, error) { return findEntry(tree, name) }, nil
	}
	entries, err := parseTree(tree)
	if err != nil {
		return nil, err
	}
	type found struct {
		entry treeEntry
		at    int
	}
	all := make(map[string]found, len(entries))
	at := 0
	for _, x := range entries {
		if _, twice := all[x.name]; !twice { // git takes the first
			all[x.name] = found{x, at}
		}
		at += len(x.mode) + len(x.name) + 2 + len(x.hash)
	}
	return func(name string) (treeEntry, int, error) { return all[name].entry, all[name].at, nil }, nil
}

// changeEntries puts each changed entry where git's order has it. A name that is
// new must not be one that a file system takes for another.
func changeEntries(dir string, entries []treeEntry, changes []entryChange) ([]treeEntry, error) {
	names := newEntryNames(entries)
	for _, c := range changes {
		at, exists := names.at[c.name]
		switch {
		case c.next.mode == "":
			names.remove(c.name)
			entries[at] = treeEntry{}
		case exists:
			entries[at] = c.next
		default:
			if other := names.collision(c.name); other != "" {
				return nil, &CollisionError{Path: path.Join(dir, c.name), Existing: path.Join(dir, other)}
			}
			names.add(c.name, len(entries))
			entries = append(entries, c.next)
		}
	}
	entries = slices.DeleteFunc(entries, func(x treeEntry) bool { return x.mode == "" })
	slices.SortFunc(entries, func(a, b treeEntry) int {
		switch {
		case entryLess(a, b):
			return -1
		case entryLess(b, a):
			return 1
		}
		return 0
	})
	return entries, nil
}

// entryNames are the names in a directory.
type entryNames struct {
	// at is where each is.
	at map[string]int
	// folded are the names by what a file system may take them for; built when a name
	// comes that is new.
	folded map[string][]string
}

func newEntryNames(entries []treeEntry) *entryNames {
	n := &entryNames{at: make(map[string]int, len(entries))}
	for i, x := range entries {
		if _, twice := n.at[x.name]; !twice {
			n.at[x.name] = i
		}
	}
	return n
}

func (n *entryNames) add(name string, at int) {
	n.at[name] = at
	n.folded[foldName(name)] = append(n.folded[foldName(name)], name)
}

func (n *entryNames) remove(name string) {
	delete(n.at, name)
	if n.folded != nil {
		folded := foldName(name)
		n.folded[folded] = slices.DeleteFunc(n.folded[folded], func(other string) bool { return other == name })
	}
}

// collision returns the name that file systems without case, or with composed
// characters, take for the new one.
func (n *entryNames) collision(name string) string {
	if n.folded == nil {
		n.folded = make(map[string][]string, len(n.at))
		for _, other := range slices.Sorted(maps.Keys(n.at)) {
			n.folded[foldName(other)] = append(n.folded[foldName(other)], other)
		}
	}
	if others := n.folded[foldName(name)]; len(others) > 0 {
		return others[0]
	}
	return ""
}

// foldName is the same for names that differ in case or composition alone: of each
// character, the first that is another case of it.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		first := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			first = min(first, other)
		}
		return first
	}, norm.NFC.String(name))
}
