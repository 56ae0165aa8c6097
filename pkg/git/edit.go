// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// File is what one path shall hold.
type File struct {
	// Path as CheckPath accepts it.
	Path string
	// Content of the file; nil removes it, and the directories that it leaves empty.
	// Removing what does not exist is no error.
	Content []byte
}

// edits is what shall happen at one path and below it.
type edits struct {
	file     *File
	children map[string]*edits
}

// plan sorts files by directory. Of two for one path the later counts.
func plan(files []File) (*edits, error) {
	root := &edits{}
	for i := range files {
		if err := CheckPath(files[i].Path); err != nil {
			return nil, err
		}
		at := root
		for part := range strings.SplitSeq(files[i].Path, "/") {
			if at.children == nil {
				at.children = map[string]*edits{}
			}
			next := at.children[part]
			if next == nil {
				next = &edits{}
				at.children[part] = next
			}
			at = next
		}
		at.file = &files[i]
	}
	return root, nil
}

// treeEditor makes the trees that edits lead to. Only the trees on the edited
// paths are read and written (G1).
type treeEditor struct {
	src *source
	// objects are the new ones in the order in which they were made.
	objects []newObject
	// bases are those of the new objects, by their hashes.
	bases map[plumbing.Hash]plumbing.Hash
	// changed are the paths whose content is not what it was.
	changed map[string]bool
}

// newObject is one that the remote does not have yet.
type newObject struct {
	object

	hash plumbing.Hash
	// base is what the branch's tip holds in its place, so that the remote has it;
	// zero for nothing.
	base plumbing.Hash
}

// keep keeps a new object that stands where replaced did, zero for nothing.
func (e *treeEditor) keep(o object, replaced plumbing.Hash) plumbing.Hash {
	h := o.hash()
	e.src.mu.Lock()
	defer e.src.mu.Unlock()
	if _, ok := e.src.pending[h]; !ok {
		base := replaced
		if earlier, ok := e.bases[replaced]; ok {
			base = earlier // what replaced is itself new
		}
		if e.bases == nil {
			e.bases = map[plumbing.Hash]plumbing.Hash{}
		}
		e.src.pending[h], e.bases[h] = o, base
		e.objects = append(e.objects, newObject{o, h, base})
	}
	return h
}

// directory applies the edits to the directory with the hash, zero for one that
// does not exist. It returns zero when nothing is left in it.
func (e *treeEditor) directory(ctx context.Context, dir string, h plumbing.Hash, ed *edits) (plumbing.Hash, error) {
	var tree []byte
	if !h.IsZero() {
		var err error
		if tree, err = e.src.get(ctx, plumbing.TreeObject, h); err != nil {
			return h, err
		}
	}
	look, err := lookInto(tree, len(ed.children))
	if err != nil {
		return h, fmt.Errorf("tree %s: %w", h, err)
	}
	var changes []entryChange
	inPlace := true
	for _, name := range slices.Sorted(maps.Keys(ed.children)) {
		now, at, err := look(name)
		if err != nil {
			return h, fmt.Errorf("tree %s: %w", h, err)
		}
		next, err := e.entry(ctx, path.Join(dir, name), name, now, ed.children[name])
		if err != nil {
			return h, err
		}
		if next != now {
			changes = append(changes, entryChange{name, now, next, at})
			inPlace = inPlace && now.mode != "" && next.mode == now.mode
		}
	}
	if len(changes) == 0 {
		return h, nil
	}
	if inPlace {
		tree = slices.Clone(tree)
		for _, c := range changes {
			setHash(tree, c.at, c.next)
		}
		return e.keep(object{plumbing.TreeObject, tree}, h), nil
	}
	entries, err := parseTree(tree)
	if err != nil {
		return h, fmt.Errorf("tree %s: %w", h, err)
	}
	if entries, err = changeEntries(dir, entries, changes); err != nil {
		return h, err
	}
	if len(entries) == 0 {
		return plumbing.ZeroHash, nil
	}
	return e.keep(encodeTree(entries), h), nil
}

// entryChange is what becomes of one name in a directory. An entry without a mode
// is none.
type entryChange struct {
	name      string
	now, next treeEntry
	at        int // where now starts in the tree object
}

// entry applies the edits to one entry, the zero value meaning none.
func (e *treeEditor) entry(ctx context.Context, p, name string, now treeEntry, ed *edits) (treeEntry, error) {
	exists := now.mode != ""
	kind := Kind("")
	if exists {
		kind = now.kind()
	}
	if kind == KindSymlink || kind == KindSubmodule {
		return now, &NotRegularError{Path: p, Kind: kind}
	}
	regular := kind == KindFile || kind == KindExecutable
	removed := ed.file != nil && ed.file.Content == nil
	written := ed.file != nil && ed.file.Content != nil

	// What is below, first: a directory may give way to a file only when the same
	// edit leaves nothing in it.
	next := now
	if len(ed.children) > 0 && (!regular || removed) {
		below := plumbing.ZeroHash
		if kind == KindDirectory {
			below = now.hash
		}
		h, err := e.directory(ctx, p, below, ed)
		if err != nil {
			return now, err
		}
		switch {
		case h == below:
		case h.IsZero():
			next = treeEntry{}
		case kind == KindDirectory:
			next.hash = h
		default:
			next = treeEntry{mode: modeTree, name: name, hash: h}
			if !written {
				e.changed[p] = regular // the file made room
				return next, nil
			}
		}
	} else if len(ed.children) > 0 && ed.writesBelow() {
		return now, &NotRegularError{Path: p, Kind: kind}
	}

	switch {
	case removed && regular:
		e.changed[p] = true
		return treeEntry{}, nil
	case removed && next.mode != "":
		return now, &NotRegularError{Path: p, Kind: next.kind()}
	case !written:
		return next, nil
	case next.mode != "" && !regular:
		return now, &NotRegularError{Path: p, Kind: next.kind()}
	}
	blob := object{plumbing.BlobObject, ed.file.Content}
	h := blob.hash()
	if regular {
		if h == now.hash {
			return now, nil
		}
		before, err := e.src.get(ctx, plumbing.BlobObject, now.hash)
		if err != nil {
			return now, err
		}
		if lfsPointer(before) {
			return now, &NotRegularError{Path: p, Kind: KindLFSPointer}
		}
	}
	e.keep(blob, now.hash)
	e.changed[p] = true
	if regular {
		now.hash = h // the mode stays
		return now, nil
	}
	return treeEntry{mode: modeFile, name: name, hash: h}, nil
}

func (ed *edits) writesBelow() bool {
	for _, c := range ed.children {
		if c.file != nil && c.file.Content != nil || c.writesBelow() {
			return true
		}
	}
	return false
}

// apply edits a tree and returns the new root and the paths that changed, in the
// order of files.
func (e *treeEditor) apply(ctx context.Context, t *Tree, files []File) (root plumbing.Hash, changed []string, err error) {
	ed, err := plan(files)
	if err != nil {
		return t.root, nil, err
	}
	written := make([]string, 0, len(files))
	for _, f := range files {
		if f.Content != nil {
			written = append(written, f.Path)
		}
	}
	if err := t.Prefetch(ctx, written...); err != nil {
		return t.root, nil, fmt.Errorf("reading what is there: %w", err)
	}
	e.changed = map[string]bool{}
	root, err = e.directory(ctx, "", t.root, ed)
	if err != nil {
		return t.root, nil, err
	}
	if root.IsZero() {
		root = e.keep(object{kind: plumbing.TreeObject}, plumbing.ZeroHash)
	}
	for _, f := range files {
		if e.changed[f.Path] {
			changed = append(changed, f.Path)
			delete(e.changed, f.Path)
		}
	}
	return root, changed, nil
}
