// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
)

// LogOptions say what of a branch's history is wanted.
type LogOptions struct {
	Branch string
	// Path of a directory or a file, as CheckPath accepts it; "" is the root.
	Path string
	// Tip is where the walk starts, a commit that the branch holds: that of an earlier
	// Log, which goes on where it ended whatever was committed since. "" is where the
	// branch is now.
	Tip string
	// Skip that many commits, and return at most Limit: 1 to 500, which is the default.
	Skip, Limit int
}

// Log is a part of a branch's history.
type Log struct {
	// Tip is where the walk started; empty without the branch.
	Tip string
	// Commits are the newest first.
	Commits []LoggedCommit
	// More says that there are further commits, behind Skip+len(Commits).
	More bool
	// Truncated says that the history goes further back than what is looked at, and no
	// further commit was found in that.
	Truncated bool
}

const (
	maxLogLimit = 500
	// maxWalk is how many commits one Log looks at.
	maxWalk = 4 * maxHistory
	// Commits are compared with their parents that many at a time.
	minAhead, maxAhead = 32, 256
	// pageAhead commits are listed with their files at a time.
	pageAhead = 64
)

// Log lists the commits of a branch that touch a path, in the order and with the
// history simplification of git log -- path without further options:
//
//   - of the commits that those before lead to, the one with the latest committer's
//     time comes next, and of equal ones the one that was met first;
//   - a commit is left out when the path is in it as in a parent, and of that commit
//     only the first such parent is followed: side branches that brought nothing
//     disappear;
//   - a merge is listed when the path differs from each of its parents, and its Files
//     are those that differ from the first;
//   - renames are not followed.
//
// For the root every commit is listed, empty ones and merges too, as git log without
// a path does. Grafts and replacements, which no remote sends, count for nothing.
//
// At most 4000 commits are looked at, counted from the tip, and fewer on a remote
// without the filter capability: 50, or what is at hand. A branch that does not exist
// has an empty Log. The error is an *InvalidError for a branch, path or tip that
// cannot be one; for a tip that the branch does not hold, or no longer,
// errors.Is(err, fs.ErrNotExist) holds; others are as of Probe.
func (r *Repository) Log(ctx context.Context, o LogOptions) (Log, error) {
	if err := o.check(); err != nil {
		return Log{}, err
	}
	tip, err := r.logTip(ctx, o)
	if err != nil || tip.IsZero() {
		return Log{}, err
	}
	if o.Limit <= 0 || o.Limit > maxLogLimit {
		o.Limit = maxLogLimit
	}
	o.Skip = min(max(0, o.Skip), maxWalk)
	h := newHistory(r, o.Branch, max(2*minAhead, 2*(o.Skip+o.Limit+1)))
	out, err := h.log(ctx, o, tip)
	if errors.Is(err, errNotThere) && h.confine() {
		out, err = h.log(ctx, o, tip)
	}
	return out, err
}

func (h *history) log(ctx context.Context, o LogOptions, tip plumbing.Hash) (Log, error) {
	start, err := h.first(ctx, tip)
	if err != nil {
		return Log{}, err
	}
	if start == nil {
		return Log{}, notThere(tip)
	}
	w := &walk{
		history: h,
		path:    o.Path,
		queue:   []*pastCommit{start},
		seen:    map[plumbing.Hash]bool{tip: true},
		same:    map[edge]bool{},
		ahead:   min(max(minAhead, o.Skip+o.Limit+1), maxAhead),
	}
	out := Log{Tip: tip.String()}
	var page []*pastCommit
	for n := 0; ; n++ {
		c, err := w.next(ctx)
		if err != nil {
			return Log{}, err
		}
		if c == nil {
			out.Truncated = w.truncated
			break
		}
		if len(page) == o.Limit {
			out.More = true
			break
		}
		if n >= o.Skip {
			page = append(page, c)
		}
	}
	for part := range slices.Chunk(page, pageAhead) {
		changes, err := h.changes(ctx, part, o.Path)
		if err != nil {
			return Log{}, err
		}
		for i, c := range part {
			out.Commits = append(out.Commits, logged(c, changes[i]))
		}
	}
	return out, nil
}

func (o LogOptions) check() error {
	if err := CheckBranch(o.Branch); err != nil {
		return err
	}
	if err := checkDirectory(o.Path); err != nil {
		return err
	}
	if o.Tip == "" {
		return nil
	}
	return checkCommit(o.Tip)
}

func checkCommit(hash string) error {
	if !plumbing.IsHash(hash) {
		return &InvalidError{Subject: "commit", Value: hash, Reason: "must be a hash of 40 hexadecimal digits"}
	}
	return nil
}

func noCommit(op, hash string) error {
	return &fs.PathError{Op: op, Path: hash, Err: fs.ErrNotExist}
}

// logTip is where the branch is, or the tip that was asked for if the branch holds
// it: who may read a branch may not read others by naming their commits.
func (r *Repository) logTip(ctx context.Context, o LogOptions) (plumbing.Hash, error) {
	s, err := r.transport.open(ctx, uploadPack, true)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	tip := r.latest(o.Branch, s.advertised().tip(o.Branch))
	s.close()
	if o.Tip == "" {
		return tip, nil
	}
	wanted := plumbing.NewHash(o.Tip)
	there, err := r.reachable(ctx, tip, []sought{{hash: wanted}}, nil)
	if err == nil && !there[wanted] {
		err = noCommit("log", o.Tip)
	}
	return wanted, err
}

// edge is from a commit to one of its parents, or to the zero hash from one that
// has none.
type edge struct{ parent, commit plumbing.Hash }

// walk goes through a history from its tip.
type walk struct {
	*history

	path  string
	queue []*pastCommit // the newest first
	seen  map[plumbing.Hash]bool
	// same says where the path is the same at both ends.
	same      map[edge]bool
	ahead     int // commits to prepare at once
	walked    int
	truncated bool
}

// next returns the next commit to list, nil at the end.
func (w *walk) next(ctx context.Context) (*pastCommit, error) {
	for len(w.queue) > 0 {
		if w.walked == maxWalk {
			w.truncated = true
			return nil, nil
		}
		c := w.queue[0]
		if !w.prepared(c) {
			if err := w.prepare(ctx); err != nil {
				return nil, err
			}
		}
		w.walked++
		w.queue = w.queue[1:]
		follow, listed, ok := w.simplify(c)
		if !ok {
			w.truncated = true
			continue
		}
		for _, p := range follow {
			w.queue = enqueue(w.queue, w.seen, w.commits[p])
		}
		if listed {
			return c, nil
		}
	}
	return nil, nil
}

// enqueue puts a commit behind all that are as new, once.
func enqueue(queue []*pastCommit, seen map[plumbing.Hash]bool, c *pastCommit) []*pastCommit {
	if seen[c.hash] {
		return queue
	}
	seen[c.hash] = true
	at, _ := slices.BinarySearchFunc(queue, c.time, func(q *pastCommit, t int64) int {
		if q.time >= t {
			return -1
		}
		return 1
	})
	return slices.Insert(queue, at, c)
}

func (w *walk) edges(c *pastCommit) []edge {
	if len(c.parents) == 0 {
		return []edge{{commit: c.hash}}
	}
	edges := make([]edge, len(c.parents))
	for i, p := range c.parents {
		edges[i] = edge{p, c.hash}
	}
	return edges
}

// prepared says whether all is at hand that simplify needs.
func (w *walk) prepared(c *pastCommit) bool {
	for _, e := range w.edges(c) {
		parent, known := w.commits[e.parent]
		if e.parent.IsZero() {
			parent, known = nil, true
		}
		if !known {
			return false
		}
		if _, ok := w.same[e]; !ok && w.path != "" && (parent != nil || e.parent.IsZero()) {
			return false
		}
	}
	return true
}

// simplify decides whether a commit is listed, and which parents are followed. It
// is not ok when that depends on a parent that cannot be had.
func (w *walk) simplify(c *pastCommit) (follow []plumbing.Hash, listed, ok bool) {
	for _, p := range c.parents {
		if w.commits[p] == nil {
			return nil, false, false
		}
		if w.path != "" && w.same[edge{p, c.hash}] {
			return []plumbing.Hash{p}, false, true
		}
	}
	return c.parents, w.path == "" || !w.same[edge{commit: c.hash}], true
}

// prepare looks ahead along all parents, for more commits each time, so that the
// number of requests does not grow with the number of commits.
func (w *walk) prepare(ctx context.Context) error {
	for {
		edges, missing, err := w.look()
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			if err := w.load(ctx, missing); err != nil {
				return err
			}
			continue
		}
		w.ahead = min(2*w.ahead, maxAhead)
		if w.path == "" {
			return nil
		}
		all := make([]*comparison, len(edges))
		for i, e := range edges {
			before := plumbing.ZeroHash
			if !e.parent.IsZero() {
				before = w.commits[e.parent].tree
			}
			all[i] = newComparison(before, w.commits[e.commit].tree, w.path, true)
		}
		if err := w.compare(ctx, all); err != nil {
			return err
		}
		for i, e := range edges {
			w.same[e] = !all[i].differs()
		}
		return nil
	}
}

// look follows all parents of the next commits and returns the edges to compare,
// and the commits that are not at hand.
func (w *walk) look() (edges []edge, missing []plumbing.Hash, err error) {
	queue := slices.Clone(w.queue)
	seen := map[plumbing.Hash]bool{}
	for range w.ahead {
		if len(queue) == 0 {
			break
		}
		c := queue[0]
		queue = queue[1:]
		for _, e := range w.edges(c) {
			if e.parent.IsZero() {
				if _, ok := w.same[e]; !ok {
					edges = append(edges, e)
				}
				continue
			}
			parent, known, err := w.commit(e.parent)
			if err != nil {
				return nil, nil, fmt.Errorf("walking back from %s: %w", c.hash, err)
			}
			switch {
			case !known && !slices.Contains(missing, e.parent):
				missing = append(missing, e.parent)
			case parent != nil:
				if _, ok := w.same[e]; !ok {
					edges = append(edges, e)
				}
				if !w.seen[e.parent] {
					queue = enqueue(queue, seen, parent)
				}
			}
		}
	}
	return edges, missing, nil
}
