// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxDiffBlobs bounds the files that are held for one diff.
const maxDiffBlobs = 32 << 20

// Shown is a commit with what it changed.
type Shown struct {
	LoggedCommit

	// Diff of Files, in the unified format as git diff --full-index --no-renames
	// writes it, and as git apply takes it: a file with a NUL byte in its first 8000
	// bytes is said to differ, without its content; here so is one of more than 4 MiB.
	// Content is copied byte for byte, so it may not be UTF-8. Nearly always the bytes
	// are git's own; where several hunks would do, git may choose others.
	Diff string
	// Truncated says that something is left out, because there are more than 500
	// files, or more than 1 MiB of text, or the files are larger than 32 MiB together.
	// Then the last line of Diff starts with a backslash and says why.
	Truncated bool
}

// Preview is what a commit would change.
type Preview struct {
	// Base is the commit that it would be made on; empty without the branch.
	Base string
	// Files, Diff and Truncated as of Shown. Without files there would be no commit,
	// or an empty one (Commit.AllowEmpty).
	Files     []ChangedFile
	Diff      string
	Truncated bool
}

// Show returns a commit with the diff between its first parent and it, at and below
// a directory, "" being the root. It may be any commit that the remote serves,
// whichever branch holds it. When the remote does not have it, errors.Is(err,
// fs.ErrNotExist) holds; what cannot be a commit's hash or a path is an
// *InvalidError; other errors are as of Probe.
func (r *Repository) Show(ctx context.Context, commit, dir string) (Shown, error) {
	if err := checkCommit(commit); err != nil {
		return Shown{}, err
	}
	if err := checkDirectory(dir); err != nil {
		return Shown{}, err
	}
	h := newHistory(r, "", 2) // with its parents
	h.blobs = true
	c, err := h.first(ctx, plumbing.NewHash(commit))
	if err == nil && c == nil {
		err = noCommit("show", commit)
	}
	if err != nil {
		return Shown{}, err
	}
	changes, err := h.changes(ctx, []*pastCommit{c}, dir)
	if err != nil {
		return Shown{}, err
	}
	p, err := h.patch(ctx, changes[0])
	if err != nil {
		return Shown{}, err
	}
	return Shown{LoggedCommit: logged(c, changes[0]), Diff: string(p.text), Truncated: p.truncated}, nil
}

// Preview returns what the last of the commits would change if Push made them on the
// branch as it is now, and makes nothing. It makes the commits as Push does, up to
// the point where that sends them. An error that Push would give as Built.Err of the
// last one is returned as it is; others are as of Probe.
func (r *Repository) Preview(ctx context.Context, branch string, commits ...Commit) (Preview, error) {
	if err := CheckBranch(branch); err != nil {
		return Preview{}, err
	}
	s, err := r.transport.open(ctx, uploadPack, true)
	if err != nil {
		return Preview{}, err
	}
	defer s.close()
	tip := r.latest(branch, s.advertised().tip(branch))
	if _, err := r.snapshot(ctx, s, branch, tip); err != nil { // so that build need not ask for the refs again
		return Preview{}, err
	}
	p := &push{r: r, branch: branch, commits: commits}
	built, b, err := p.build(ctx, tip)
	if err == nil {
		err = built[len(built)-1].Err
	}
	if err != nil {
		return Preview{}, err
	}
	rd := &reader{r: r, local: b.src.local, branch: branch, blobs: true}
	changed := newComparison(b.base.root, b.tree.root, "", false)
	if err := rd.compare(ctx, []*comparison{changed}); err != nil {
		return Preview{}, err
	}
	text, err := rd.patch(ctx, changed)
	if err != nil {
		return Preview{}, err
	}
	return Preview{Base: b.base.Commit(), Files: changed.files(), Diff: string(text.text), Truncated: text.truncated}, nil
}

// patch writes the diff of what was found, having read in one request the files
// that differ.
func (r *reader) patch(ctx context.Context, of *comparison) (*patch, error) {
	p := &patch{}
	wants := map[plumbing.Hash]bool{}
	for _, c := range of.found {
		if c.from.hash == c.to.hash && (c.from.kind() == KindSymlink) == (c.to.kind() == KindSymlink) {
			continue // the mode alone
		}
		for _, e := range []treeEntry{c.from, c.to} {
			if e.mode != "" && e.kind() != KindSubmodule {
				wants[e.hash] = true
			}
		}
	}
	blobs, err := r.objects(ctx, fetchRequest{wants: slices.Collect(maps.Keys(wants)), limit: maxDiffBlobs})
	if errors.Is(err, errTooLarge) {
		p.leaveOut(fmt.Sprintf("the files are larger than %d bytes together", maxDiffBlobs))
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	for _, c := range of.found {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if p.file(c.path, sideOf(c.from, blobs), sideOf(c.to, blobs)); p.truncated {
			return p, nil
		}
	}
	if of.cut {
		p.leaveOut(fmt.Sprintf("more than %d files differ", maxFiles))
	}
	return p, nil
}

func sideOf(e treeEntry, blobs map[plumbing.Hash]object) side {
	if e.mode == "" {
		return side{}
	}
	s := side{mode: e.canonicalMode(), hash: e.hash.String(), data: blobs[e.hash].data}
	if e.kind() == KindSubmodule {
		s.data = fmt.Appendf(nil, "Subproject commit %s\n", e.hash)
	}
	return s
}
