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

// reader finds objects of a history for one call: those at hand, and the rest at
// the remote. Not safe for concurrent use.
type reader struct {
	r *Repository
	// local finds what is at hand.
	local func(plumbing.Hash) (object, bool)
	// branch holds what is read; empty when it may be any.
	branch string
	// blobs says that they are read as well.
	blobs bool
	// tips are what a remote that serves only what refs point at sent of them.
	tips map[plumbing.Hash]object
}

// maxTips is how many branches of such a remote are read to find a commit.
const maxTips = 16

// objects returns all of the trees or blobs that the request wants, or an error:
// errTooLarge, or one for which errors.Is(err, errNotThere) holds, or as of
// Repository.Probe.
func (r *reader) objects(ctx context.Context, req fetchRequest) (map[plumbing.Hash]object, error) {
	found := make(map[plumbing.Hash]object, len(req.wants))
	req.wants = slices.Clone(req.wants)
	take := func(get func(plumbing.Hash) (object, bool)) (all bool) {
		req.wants = slices.DeleteFunc(req.wants, func(h plumbing.Hash) bool {
			o, ok := get(h)
			if ok {
				found[h] = o
			}
			return ok
		})
		return len(req.wants) == 0
	}
	if take(r.local) || take(in(r.tips)) {
		return found, nil
	}
	// What is wanted by its hash is sent whatever the filter says, and no more.
	got, err := r.r.fetch(ctx, nil, false, req)
	if err != nil && !errors.Is(err, errNotThere) {
		return nil, err
	}
	if take(in(got)) {
		return found, nil
	}
	if err := r.readTips(ctx); err != nil {
		return nil, err
	}
	if !take(in(r.tips)) {
		return nil, notThere(req.wants[0])
	}
	return found, nil
}

func in(objects map[plumbing.Hash]object) func(plumbing.Hash) (object, bool) {
	return func(h plumbing.Hash) (object, bool) {
		o, ok := objects[h]
		return o, ok
	}
}

// readTips fetches the branches with a part of their history: what every remote
// serves. It does so once.
func (r *reader) readTips(ctx context.Context) error {
	if r.tips != nil {
		return nil
	}
	r.tips = map[plumbing.Hash]object{}
	s, err := r.r.transport.open(ctx, uploadPack, true)
	if err != nil {
		return err
	}
	defer s.close()
	branches := s.advertised().branches
	var wants []plumbing.Hash
	for _, name := range slices.Sorted(maps.Keys(branches)) {
		if h := branches[name]; (r.branch == "" || name == r.branch) && !slices.Contains(wants, h) && len(wants) < maxTips {
			wants = append(wants, h)
		}
	}
	if len(wants) == 0 {
		return nil
	}
	req := fetchRequest{wants: wants, depth: maxFullHistory}
	if !r.blobs {
		req.filter = filterBlobs
	}
	got, err := r.r.fetch(ctx, s, true, req)
	if err == nil {
		r.tips = got
	}
	return err
}

// pastCommit is a commit as far as walking needs it.
type pastCommit struct {
	hash    plumbing.Hash
	data    []byte
	tree    plumbing.Hash
	parents []plumbing.Hash
	time    int64
}

// history reads commits. Not safe for concurrent use.
type history struct {
	reader

	// depth of the next fetch of commits. It doubles, up to maxHistory.
	depth int
	// ended says that no more of them are fetched.
	ended bool
	// confined says that only what is in tips counts.
	confined bool
	// commits that were looked for: nil are those that cannot be had.
	commits map[plumbing.Hash]*pastCommit
}

func newHistory(r *Repository, branch string, depth int) *history {
	return &history{
		reader:  reader{r: r, local: r.cache.get, branch: branch},
		depth:   max(1, min(depth, maxHistory)),
		commits: map[plumbing.Hash]*pastCommit{},
	}
}

// commit says whether it is known what there is of the commit: c, or nil when it
// cannot be had.
func (h *history) commit(hash plumbing.Hash) (c *pastCommit, known bool, err error) {
	if c, ok := h.commits[hash]; ok {
		return c, true, nil
	}
	if o, ok := h.local(hash); ok && !h.confined {
		c, err := h.keep(hash, o)
		return c, true, err
	}
	return nil, false, nil
}

func (h *history) keep(hash plumbing.Hash, o object) (*pastCommit, error) {
	if o.kind != plumbing.CommitObject {
		h.commits[hash] = nil
		return nil, nil
	}
	tree, parents, err := commitHeader(o.data)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", hash, err)
	}
	c := &pastCommit{hash, o.data, tree, parents, commitTime(o.data)}
	h.commits[hash] = c
	return c, nil
}

// confine leaves no commits but those whose trees the remote has sent, after it
// refused to serve others. It says whether that makes a difference.
func (h *history) confine() bool {
	if h.confined || len(h.tips) == 0 {
		return false
	}
	h.confined, h.ended = true, true
	maps.DeleteFunc(h.commits, func(hash plumbing.Hash, _ *pastCommit) bool {
		_, ok := h.tips[hash]
		return !ok
	})
	return true
}

// load fetches the commits, with some of what came before them, without trees
// where the remote can leave them out.
func (h *history) load(ctx context.Context, wants []plumbing.Hash) error {
	got := h.tips
	if !h.ended {
		var err error
		if got, err = h.fetchCommits(ctx, wants); err != nil {
			return err
		}
	}
	for hash, o := range got {
		if o.kind != plumbing.CommitObject || h.commits[hash] != nil {
			continue
		}
		if _, err := h.keep(hash, o); err != nil {
			return err
		}
	}
	for _, hash := range wants {
		if h.commits[hash] == nil {
			h.commits[hash] = nil
		}
	}
	return nil
}

func (h *history) fetchCommits(ctx context.Context, wants []plumbing.Hash) (map[plumbing.Hash]object, error) {
	s, err := h.r.transport.open(ctx, uploadPack, false)
	if err != nil {
		return nil, err
	}
	defer s.close()
	req := fetchRequest{wants: wants, depth: h.depth, filter: filterTrees}
	if h.depth = min(2*h.depth, maxHistory); !s.advertised().capabilities.has("filter") {
		// Each fetch brings all that the commits hold: there is but one.
		req.depth, h.ended = min(req.depth, maxFullHistory), true
	}
	got, err := h.r.fetch(ctx, s, false, req)
	if errors.Is(err, errNotThere) {
		h.ended = true
		if err = h.readTips(ctx); err == nil {
			got = h.tips
		}
	}
	return got, err
}

// first returns the commit, or nil when the remote does not have it.
func (h *history) first(ctx context.Context, hash plumbing.Hash) (*pastCommit, error) {
	c, known, err := h.commit(hash)
	if err == nil && !known {
		err = h.load(ctx, []plumbing.Hash{hash})
		c = h.commits[hash]
	}
	return c, err
}

// changes compares each commit with its first parent at and below dir.
func (h *history) changes(ctx context.Context, commits []*pastCommit, dir string) ([]*comparison, error) {
	all := make([]*comparison, len(commits))
	for i, c := range commits {
		before := plumbing.ZeroHash
		if len(c.parents) > 0 {
			parent, err := h.first(ctx, c.parents[0])
			if err != nil {
				return nil, err
			}
			if parent == nil {
				return nil, notThere(c.parents[0])
			}
			before = parent.tree
		}
		all[i] = newComparison(before, c.tree, dir, false)
	}
	return all, h.compare(ctx, all)
}

func logged(c *pastCommit, with *comparison) LoggedCommit {
	l := decodeCommit(c.hash, c.data)
	l.Files, l.FilesTruncated = with.files(), with.cut
	return l
}

// checkDirectory accepts a directory that can be asked for; the root is empty.
func checkDirectory(dir string) error {
	if dir == "" {
		return nil
	}
	return CheckPath(dir)
}
