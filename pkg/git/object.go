// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// object is one Git object. data is shared and must not be written to.
type object struct {
	kind plumbing.ObjectType
	data []byte
}

func (o object) hash() plumbing.Hash {
	return plumbing.ComputeHash(o.kind, o.data)
}

// emptyTree is the hash that every repository gives to a tree without entries.
var emptyTree = plumbing.ComputeHash(plumbing.TreeObject, nil)

// BlobHash is the hash that Git gives to a file with this content. Comparing it
// with Tree.Hash or Entry.Hash tells whether a file differs without reading it.
func BlobHash(content []byte) string {
	return plumbing.ComputeHash(plumbing.BlobObject, content).String()
}

// treeEntry is one line of a tree object. The mode stays as it was written, odd
// ones included, because a neighbour's entry is copied byte for byte (G8).
type treeEntry struct {
	mode string
	name string
	hash plumbing.Hash
}

const (
	modeFile = "100644"
	modeTree = "40000"
)

// Kind is what an entry of a tree is.
type Kind string

// The kinds of an entry.
const (
	KindFile       Kind = "File"
	KindExecutable Kind = "Executable"
	KindDirectory  Kind = "Directory"
	KindSymlink    Kind = "Symlink"
	KindSubmodule  Kind = "Submodule"
	// KindLFSPointer is a file whose content lives in Git LFS.
	KindLFSPointer Kind = "LFSPointer"
)

func (e treeEntry) kind() Kind {
	// Only the digits that carry the type and the owner's x bit count; historic
	// trees hold 100664 and zero-padded modes.
	mode := 0
	for _, c := range []byte(e.mode) {
		mode = mode<<3 | int(c-'0')
	}
	switch mode & 0o170000 {
	case 0o040000:
		return KindDirectory
	case 0o120000:
		return KindSymlink
	case 0o160000:
		return KindSubmodule
	}
	if mode&0o100 != 0 {
		return KindExecutable
	}
	return KindFile
}

func (e treeEntry) directory() bool { return e.mode != "" && e.kind() == KindDirectory }

// canonicalMode is the mode that git shows: one of five. It is empty for no entry.
func (e treeEntry) canonicalMode() string {
	if e.mode == "" {
		return ""
	}
	switch e.kind() {
	case KindDirectory:
		return "040000"
	case KindSymlink:
		return "120000"
	case KindSubmodule:
		return "160000"
	case KindExecutable:
		return "100755"
	case KindFile, KindLFSPointer:
	}
	return modeFile
}

// parseTree reads a tree object.
func parseTree(data []byte) ([]treeEntry, error) {
	// An entry takes at least 28 bytes and commonly about 40.
	entries := make([]treeEntry, 0, len(data)/36+1)
	// One string for all names: the entries share its memory.
	for text := string(data); text != ""; {
		nul := strings.IndexByte(text, 0)
		space := 0
		for space < min(len(text), 7) && text[space] >= '0' && text[space] <= '7' {
			space++
		}
		if space < len(text) && text[space] != ' ' {
			return nil, fmt.Errorf("malformed tree object: bad mode in entry %d", len(entries))
		}
		if space < 1 || nul < space || len(text) < nul+1+20 {
			return nil, fmt.Errorf("malformed tree object: entry %d is cut short", len(entries))
		}
		e := treeEntry{mode: text[:space], name: text[space+1 : nul]}
		copy(e.hash[:], text[nul+1:nul+21])
		entries = append(entries, e)
		text = text[nul+21:]
	}
	return entries, nil
}

// findEntry reads one entry of a tree object, which starts there, and passes over
// the others. Without it, the mode is empty.
func findEntry(tree []byte, name string) (e treeEntry, at int, err error) {
	for at < len(tree) {
		entry := tree[at : at+entryLength(tree[at:])]
		end := len(entry) - 1 - 20
		if end < 0 || entry[end] != 0 || bytes.HasSuffix(entry[:end], []byte(name)) {
			one, err := parseTree(entry)
			if err != nil {
				return treeEntry{}, 0, err
			}
			if one[0].name == name {
				return one[0], at, nil
			}
		}
		at += len(entry)
	}
	return treeEntry{}, 0, nil
}

// setHash gives the entry that starts there another hash.
func setHash(tree []byte, at int, e treeEntry) {
	copy(tree[at+len(e.mode)+1+len(e.name)+1:], e.hash[:])
}

func encodeTree(entries []treeEntry) object {
	size := 0
	for _, e := range entries {
		size += len(e.mode) + len(e.name) + 22
	}
	data := make([]byte, 0, size)
	for _, e := range entries {
		data = append(data, e.mode...)
		data = append(data, ' ')
		data = append(data, e.name...)
		data = append(data, 0)
		data = append(data, e.hash[:]...)
	}
	return object{plumbing.TreeObject, data}
}

// entryLess orders entries as git write-tree does: a directory sorts as if its
// name ended in a slash.
func entryLess(a, b treeEntry) bool {
	n := min(len(a.name), len(b.name))
	if a.name[:n] != b.name[:n] {
		return a.name[:n] < b.name[:n]
	}
	next := func(e treeEntry) byte {
		switch {
		case len(e.name) > n:
			return e.name[n]
		case e.kind() == KindDirectory:
			return '/'
		}
		return 0
	}
	return next(a) < next(b)
}

// commitHeader reads the tree and the parents of a commit object.
func commitHeader(data []byte) (tree plumbing.Hash, parents []plumbing.Hash, err error) {
	line, rest, _ := bytes.Cut(data, []byte("\n"))
	name, ok := bytes.CutPrefix(line, []byte("tree "))
	if !ok || !plumbing.IsHash(string(name)) {
		return tree, nil, fmt.Errorf("malformed commit object: no tree line")
	}
	tree = plumbing.NewHash(string(name))
	for {
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		name, ok := bytes.CutPrefix(line, []byte("parent "))
		if !ok || !plumbing.IsHash(string(name)) {
			return tree, parents, nil
		}
		parents = append(parents, plumbing.NewHash(string(name)))
	}
}
