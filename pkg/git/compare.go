// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// FileChange is what happened to a file.
type FileChange string

// What can happen to a file. A renamed one was deleted and added.
const (
	FileAdded FileChange = "Added"
	// FileModified is one whose content, mode or kind is another.
	FileModified FileChange = "Modified"
	FileDeleted  FileChange = "Deleted"
)

// ChangedFile is a file, symbolic link or submodule that differs.
type ChangedFile struct {
	// Path from the root, as the tree has it: hardly ever, but possibly, not UTF-8.
	Path   string
	Change FileChange
}

const (
	// maxFiles of one commit are listed, and shown in a diff.
	maxFiles = 500
	// maxPairs of directories are compared for one commit.
	maxPairs = 20_000
	// maxWants objects are asked for in one request.
	maxWants = 512
	// maxTreeBytes of directories are held at once.
	maxTreeBytes = 128 << 20
)

// change is one path where two trees differ. The zero entry is nothing.
type change struct {
	path     string
	from, to treeEntry
}

func (c change) file() ChangedFile {
	f := ChangedFile{Path: c.path, Change: FileModified}
	switch {
	case c.from.mode == "":
		f.Change = FileAdded
	case c.to.mode == "":
		f.Change = FileDeleted
	}
	return f
}

// comparison finds what differs between two trees at and below a directory.
// Advance it with compare, together with others, so that all ask the remote
// together.
type comparison struct {
	// quick ends it with the first difference.
	quick bool
	found []change   // in path order, of which the first maxFiles count
	cut   bool       // there may be more
	open  []treePair // still to be compared, in path order
	spent int
}

// treePair are two directories at one path, either of which may be missing: the
// zero hash. Within them only what is at or below rest counts.
type treePair struct {
	path, rest string
	from, to   plumbing.Hash
}

func (p treePair) key() string { return p.path + "/" }

func newComparison(from, to plumbing.Hash, dir string, quick bool) *comparison {
	c := &comparison{quick: quick}
	c.push(treePair{rest: dir, from: from, to: to})
	return c
}

func (c *comparison) push(p treePair) {
	for _, h := range []*plumbing.Hash{&p.from, &p.to} {
		if *h == emptyTree {
			*h = plumbing.ZeroHash
		}
	}
	if p.from != p.to {
		c.open = append(c.open, p)
	}
}

// differs is the result of a quick comparison.
func (c *comparison) differs() bool { return len(c.found) > 0 || c.cut }

// files is the result of one that is not.
func (c *comparison) files() []ChangedFile {
	var out []ChangedFile
	for _, f := range c.found {
		out = append(out, f.file())
	}
	return out
}

// width is how many open pairs are worth comparing at once: hardly any directory
// differs without a file in it that does.
func (c *comparison) width() int {
	if c.quick {
		return min(1, len(c.open))
	}
	return min(maxFiles, len(c.open))
}

// advance replaces the first n open pairs by what they lead to.
func (c *comparison) advance(n int, trees func(plumbing.Hash) ([]treeEntry, error)) error {
	pairs := c.open[:n]
	c.open = slices.Clone(c.open[n:])
	for _, p := range pairs {
		from, err := trees(p.from)
		if err != nil {
			return err
		}
		to, err := trees(p.to)
		if err != nil {
			return err
		}
		c.pair(p, from, to)
	}
	if c.spent += n; c.spent > maxPairs && len(c.open) > 0 {
		c.open, c.cut = nil, true
	}
	slices.SortFunc(c.found, func(a, b change) int { return cmp.Compare(a.path, b.path) })
	slices.SortFunc(c.open, func(a, b treePair) int { return cmp.Compare(a.key(), b.key()) })
	if c.quick && len(c.found) > 0 {
		c.open = nil
	}
	if len(c.found) > maxFiles {
		c.found, c.cut = c.found[:maxFiles], true
	}
	if len(c.found) == maxFiles {
		last := c.found[maxFiles-1].path
		keep, _ := slices.BinarySearchFunc(c.open, last, func(p treePair, last string) int { return cmp.Compare(p.key(), last) })
		if keep < len(c.open) {
			c.open, c.cut = c.open[:keep], true
		}
	}
	return nil
}

// pair merges two directories, both in Git's order, in which a file and a
// directory of one name are two entries.
func (c *comparison) pair(p treePair, from, to []treeEntry) {
	only, rest, deeper := strings.Cut(p.rest, "/")
	entry := func(from, to treeEntry) {
		name := from.name
		if from.mode == "" {
			name = to.name
		}
		same := from == to || from.hash == to.hash && from.canonicalMode() == to.canonicalMode()
		if same || only != "" && name != only {
			return
		}
		path := name
		if p.path != "" {
			path = p.path + "/" + name
		}
		switch {
		case from.directory() || to.directory():
			c.push(treePair{path: path, rest: rest, from: from.hash, to: to.hash})
		case !deeper:
			c.found = append(c.found, change{path, from, to})
		}
	}
	for len(from) > 0 || len(to) > 0 {
		switch {
		case len(to) == 0 || len(from) > 0 && entryLess(from[0], to[0]):
			entry(from[0], treeEntry{})
			from = from[1:]
		case len(from) == 0 || entryLess(to[0], from[0]):
			entry(treeEntry{}, to[0])
			to = to[1:]
		default:
			entry(from[0], to[0])
			from, to = from[1:], to[1:]
		}
	}
}

// compare brings all comparisons to their end, a level of directories with each
// request.
func (r *reader) compare(ctx context.Context, all []*comparison) error {
	limit := maxWants
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		steps, wants := nextSteps(all, limit)
		if len(steps) == 0 {
			return nil
		}
		objects, err := r.objects(ctx, fetchRequest{wants: wants, filter: filterTrees, limit: maxTreeBytes})
		if errors.Is(err, errTooLarge) && limit > 2 {
			limit = max(2, min(limit, len(wants))/4)
			continue
		}
		if err != nil {
			return err
		}
		parsed := map[plumbing.Hash][]treeEntry{plumbing.ZeroHash: nil}
		trees := func(h plumbing.Hash) ([]treeEntry, error) {
			if entries, ok := parsed[h]; ok {
				return entries, nil
			}
			entries, err := parseTreeObject(h, objects[h])
			parsed[h] = entries
			return entries, err
		}
		for _, s := range steps {
			if err := s.of.advance(s.pairs, trees); err != nil {
				return err
			}
		}
	}
}

type step struct {
	of    *comparison
	pairs int
}

// nextSteps are those that need no more than limit objects, and at least one pair.
func nextSteps(all []*comparison, limit int) (steps []step, wants []plumbing.Hash) {
	seen := map[plumbing.Hash]bool{plumbing.ZeroHash: true}
	for _, c := range all {
		n := 0
		for _, p := range c.open[:c.width()] {
			if len(wants)+2 > limit {
				break
			}
			for _, h := range []plumbing.Hash{p.from, p.to} {
				if !seen[h] {
					seen[h] = true
					wants = append(wants, h)
				}
			}
			n++
		}
		if n > 0 {
			steps = append(steps, step{c, n})
		}
	}
	return steps, wants
}

func parseTreeObject(h plumbing.Hash, o object) ([]treeEntry, error) {
	if o.kind != plumbing.TreeObject {
		return nil, fmt.Errorf("object %s is a %s where a tree belongs: the repository is damaged", h, o.kind)
	}
	entries, err := parseTree(o.data)
	if err != nil {
		return nil, fmt.Errorf("tree %s: %w", h, err)
	}
	return entries, nil
}
