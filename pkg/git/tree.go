// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

// source finds objects: those not pushed yet, those in the cache, and the rest
// at the remote.
type source struct {
	r   *Repository
	tip plumbing.Hash // the remote's commit that all of them belong to

	mu      sync.Mutex // protects the fields below
	pending map[plumbing.Hash]object
	// fetched are those that were asked for: the cache may have no room for all.
	fetched map[plumbing.Hash]object
	// failed is the first failure to reach the remote: whoever was given it may not
	// have passed it on.
	failed error
}

func (s *source) local(h plumbing.Hash) (object, bool) {
	if h == emptyTree {
		return object{kind: plumbing.TreeObject}, true
	}
	s.mu.Lock()
	o, ok := s.pending[h]
	if !ok {
		o, ok = s.fetched[h]
	}
	s.mu.Unlock()
	if !ok {
		o, ok = s.r.cache.get(h)
	}
	return o, ok
}

func (s *source) get(ctx context.Context, kind plumbing.ObjectType, h plumbing.Hash) ([]byte, error) {
	o, ok := s.local(h)
	if !ok {
		got, err := s.fetch(ctx, []plumbing.Hash{h})
		if err != nil {
			return nil, err
		}
		o = got[h]
	}
	if o.kind != kind {
		return nil, fmt.Errorf("object %s is a %s where a %s belongs: the repository is damaged", h, o.kind, kind)
	}
	return o.data, nil
}

func (s *source) fetch(ctx context.Context, wants []plumbing.Hash) (map[plumbing.Hash]object, error) {
	got, err := s.r.fetchObjects(ctx, s.tip, wants)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.failed == nil {
		s.failed = err
	}
	for _, h := range wants {
		if o, ok := got[h]; ok {
			s.fetched[h] = o
		}
	}
	return got, err
}

func (s *source) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// entry is one entry of a tree; without it, the mode is empty.
func (s *source) entry(ctx context.Context, tree plumbing.Hash, name string) (treeEntry, error) {
	data, err := s.get(ctx, plumbing.TreeObject, tree)
	if err != nil {
		return treeEntry{}, err
	}
	e, _, err := findEntry(data, name)
	if err != nil {
		return treeEntry{}, fmt.Errorf("tree %s: %w", tree, err)
	}
	return e, nil
}

func (s *source) tree(ctx context.Context, h plumbing.Hash) ([]treeEntry, error) {
	data, err := s.get(ctx, plumbing.TreeObject, h)
	if err != nil {
		return nil, err
	}
	entries, err := parseTree(data)
	if err != nil {
		return nil, fmt.Errorf("tree %s: %w", h, err)
	}
	return entries, nil
}

// Tree is the content of one commit. It is immutable and safe for concurrent
// use. Its methods may have to reach the remote; then errors as of
// Repository.Probe are possible besides those that are named.
type Tree struct {
	src    *source
	commit plumbing.Hash
	root   plumbing.Hash
}

// Commit is the hash of the commit, empty for a branch that does not exist yet.
func (t *Tree) Commit() string {
	if t.commit.IsZero() {
		return ""
	}
	return t.commit.String()
}

// Entry is one name in a directory.
type Entry struct {
	Name string
	Kind Kind
	// Hash of a file is comparable with BlobHash.
	Hash string
}

// List returns what is directly in a directory, "" being the root, in Git's
// order. For a directory that does not exist, errors.Is(err, fs.ErrNotExist)
// holds; for a path that is none, the error is a *NotRegularError.
func (t *Tree) List(ctx context.Context, dir string) ([]Entry, error) {
	root := t.root
	if dir != "" && dir != "." {
		e, err := t.lookup(ctx, "list", dir)
		if err != nil {
			return nil, err
		}
		if e.kind() != KindDirectory {
			return nil, &NotRegularError{Path: dir, Kind: e.kind()}
		}
		root = e.hash
	}
	entries, err := t.src.tree(ctx, root)
	if err != nil {
		return nil, err
	}
	out := make([]Entry, len(entries))
	for i, e := range entries {
		out[i] = Entry{Name: e.name, Kind: e.kind(), Hash: e.hash.String()}
	}
	return out, nil
}

// Read returns the content of a file, which must not be written to. For a path
// that does not exist, errors.Is(err, fs.ErrNotExist) holds; what is not a file,
// an LFS pointer included, is a *NotRegularError.
func (t *Tree) Read(ctx context.Context, name string) ([]byte, error) {
	e, err := t.file(ctx, "read", name)
	if err != nil {
		return nil, err
	}
	data, err := t.src.get(ctx, plumbing.BlobObject, e.hash)
	if err != nil {
		return nil, err
	}
	if lfsPointer(data) {
		return nil, &NotRegularError{Path: name, Kind: KindLFSPointer}
	}
	return data, nil
}

// Hash returns the hash of a file, which BlobHash gives for the same content,
// without reading it. Errors as of Read, LFS pointers excepted.
func (t *Tree) Hash(ctx context.Context, name string) (string, error) {
	e, err := t.file(ctx, "hash", name)
	if err != nil {
		return "", err
	}
	return e.hash.String(), nil
}

// Prefetch makes the content of files available in one request instead of one
// each. Paths that do not exist or are no files are left out.
func (t *Tree) Prefetch(ctx context.Context, names ...string) error {
	wants := map[plumbing.Hash]bool{}
	for _, name := range names {
		e, err := t.file(ctx, "read", name)
		if err != nil {
			if err := t.src.failure(); err != nil {
				return err
			}
			continue
		}
		if _, ok := t.src.local(e.hash); !ok {
			wants[e.hash] = true
		}
	}
	if len(wants) == 0 {
		return nil
	}
	_, err := t.src.fetch(ctx, slices.Collect(maps.Keys(wants)))
	return err
}

func (t *Tree) file(ctx context.Context, op, name string) (treeEntry, error) {
	e, err := t.lookup(ctx, op, name)
	if err != nil {
		return e, err
	}
	if k := e.kind(); k != KindFile && k != KindExecutable {
		return e, &NotRegularError{Path: name, Kind: k}
	}
	return e, nil
}

func (t *Tree) lookup(ctx context.Context, op, name string) (treeEntry, error) {
	h := t.root
	walked := ""
	for rest := name; ; {
		part, more, deeper := strings.Cut(rest, "/")
		e, err := t.src.entry(ctx, h, part)
		if err != nil {
			return treeEntry{}, err
		}
		if e.mode == "" {
			return treeEntry{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
		if !deeper {
			return e, nil
		}
		walked = path.Join(walked, part)
		switch k := e.kind(); k {
		case KindDirectory:
			h, rest = e.hash, more
		case KindSymlink, KindSubmodule:
			return treeEntry{}, &NotRegularError{Path: walked, Kind: k}
		default:
			return treeEntry{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
}

// lfsPointer recognises the file that Git LFS leaves in place of the content.
func lfsPointer(data []byte) bool {
	return len(data) < 1024 && bytes.HasPrefix(data, []byte("version https://git-lfs.github.com/spec/v1\n"))
}
