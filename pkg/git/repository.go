// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Config says where a repository is and how to reach it.
type Config struct {
	// URL as CheckURL accepts it.
	URL string
	// Credentials are read for each session, and once more when the remote does not
	// accept them, so that a changed Secret or an expired token needs no restart
	// (G9). Nil: anonymous.
	Credentials func(context.Context) (Credentials, error)
	// Signer is read by each Push that makes a commit; each one is signed, as the
	// committer. What cannot be signed is not made. Nil: unsigned.
	Signer func(context.Context) (Signer, error)
	// Timeout of one exchange with the remote. Default 60s.
	Timeout time.Duration
	// AllowInsecureHTTP allows http:// URLs.
	AllowInsecureHTTP bool
	// CacheBytes bounds the objects kept in memory for all branches. Default 64 MiB.
	CacheBytes int64
}

// Repository reads from and writes to one remote repository. Safe for
// concurrent use.
type Repository struct {
	transport transport
	cache     *cache
	signer    func(context.Context) (Signer, error)
	thin      thinPacks
	deflate   sync.Pool // of *zlib.Writer

	mu     sync.Mutex               // protects the fields below
	tips   map[string]plumbing.Hash // where branches were last seen: what a fetch need not send again
	pushed map[string]ownPush
}

// ownPush is the last push that landed, and where the branch was before it and
// before those right before it.
type ownPush struct {
	at     time.Time
	tip    plumbing.Hash
	before []plumbing.Hash
}

const (
	// replicaLag is how long after our own push an advertisement that does not know
	// of it is taken for that of a replica that lags behind.
	replicaLag = 30 * time.Second
	maxBefore  = 16
)

// NewRepository opens no connection. It returns an *InvalidError for a URL that
// cannot be used.
func NewRepository(c Config) (*Repository, error) {
	r, err := parseURL(c.URL, c.AllowInsecureHTTP)
	if err != nil {
		return nil, err
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Minute
	}
	if c.CacheBytes <= 0 {
		c.CacheBytes = defaultCacheBytes
	}
	var t transport
	switch r.scheme {
	case "ssh":
		t = newSSHTransport(r, c)
	default:
		t = newHTTPTransport(r, c)
	}
	return &Repository{
		transport: t, cache: newCache(c.CacheBytes), signer: c.Signer,
		tips: map[string]plumbing.Hash{}, pushed: map[string]ownPush{},
	}, nil
}

// Close drops idle connections. The repository can still be used.
func (r *Repository) Close() { r.transport.close() }

// Probe asks whether the remote is there, accepts the credentials and offers to
// take pushes: nil, or *UnauthorizedError, *HostKeyError, *SecretError,
// *RefusedError, *UnreachableError or *UnsupportedError, or that of reading the
// credentials. It costs one request and changes nothing.
func (r *Repository) Probe(ctx context.Context) error {
	s, err := r.transport.open(ctx, receivePack, true)
	if err != nil {
		return err
	}
	s.close()
	return nil
}

// Tree is the branch as the remote has it now. A branch, or a whole repository,
// that does not exist yet is an empty tree. Errors as of Probe.
func (r *Repository) Tree(ctx context.Context, branch string) (*Tree, error) {
	if err := CheckBranch(branch); err != nil {
		return nil, err
	}
	s, err := r.transport.open(ctx, uploadPack, true)
	if err != nil {
		return nil, err
	}
	defer s.close()
	tip := s.advertised().tip(branch)
	return r.snapshot(ctx, s, branch, tip)
}

// snapshot is the tree of a tip, fetched if need be. s, when given, is an unused
// session of upload-pack.
func (r *Repository) snapshot(ctx context.Context, s session, branch string, tip plumbing.Hash) (*Tree, error) {
	src := &source{r: r, tip: tip, pending: map[plumbing.Hash]object{}, fetched: map[plumbing.Hash]object{}}
	if tip.IsZero() {
		return &Tree{src: src, root: emptyTree}, nil
	}
	commit, ok := r.cache.get(tip)
	if !ok {
		got, err := r.fetchTip(ctx, s, tip)
		if err != nil {
			return nil, err
		}
		commit = got
	}
	root, _, err := commitHeader(commit.data)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", tip, err)
	}
	r.saw(branch, tip)
	return &Tree{src: src, commit: tip, root: root}, nil
}

func (r *Repository) saw(branch string, tip plumbing.Hash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tips[branch] = tip
}

// landed notes our own push.
func (r *Repository) landed(branch string, from, to plumbing.Hash) {
	r.saw(branch, to)
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.pushed[branch]
	if last.tip != from || time.Since(last.at) > replicaLag {
		last.before = nil
	}
	before := append(slices.Clone(last.before), from)
	r.pushed[branch] = ownPush{time.Now(), to, before[max(0, len(before)-maxBefore):]}
}

// latest is where the branch is by all that is known, given what the remote
// says: a replica may not have heard of our own last push yet. The
// compare-and-swap catches the guess when it is wrong.
func (r *Repository) latest(branch string, said plumbing.Hash) plumbing.Hash {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.pushed[branch]; ok && time.Since(last.at) <= replicaLag && slices.Contains(last.before, said) {
		return last.tip
	}
	return said
}

func (r *Repository) forgetPush(branch string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pushed, branch)
}

// maxHaves bounds what a fetch tells about other branches.
const maxHaves = 16

// haves are tips that were seen and whose commits are still in the cache.
func (r *Repository) haves() []plumbing.Hash {
	r.mu.Lock()
	tips := slices.Collect(maps.Values(r.tips))
	r.mu.Unlock()
	tips = slices.DeleteFunc(tips, func(h plumbing.Hash) bool {
		_, ok := r.cache.get(h)
		return !ok
	})
	return tips[:min(len(tips), maxHaves)]
}

// fetchTip fetches a commit with its trees, and with its blobs from a remote that
// cannot leave them out.
func (r *Repository) fetchTip(ctx context.Context, s session, tip plumbing.Hash) (object, error) {
	req := fetchRequest{wants: []plumbing.Hash{tip}, haves: r.haves(), depth: 1, filter: filterBlobs}
	for {
		got, err := r.fetch(ctx, s, true, req)
		if err != nil {
			return object{}, err
		}
		if commit, ok := got[tip]; ok {
			return commit, nil
		}
		if len(req.haves) == 0 {
			return object{}, notThere(tip)
		}
		// A branch that was set back lies within what we said we have.
		req.haves, s = nil, nil
	}
}

func notThere(h plumbing.Hash) error {
	return &UnreachableError{Err: fmt.Errorf("%s: %w", h, errNotThere)}
}

// fetch runs the request on s, or on a new session, and keeps what it brings.
func (r *Repository) fetch(ctx context.Context, s session, refs bool, req fetchRequest) (map[plumbing.Hash]object, error) {
	if s == nil {
		opened, err := r.transport.open(ctx, uploadPack, refs)
		if err != nil {
			return nil, err
		}
		s = opened
		defer s.close()
	}
	got, err := fetch(ctx, s, req, r.cache.get)
	if errors.Is(err, errNotThere) {
		return nil, &UnreachableError{Err: err}
	}
	if err != nil {
		return nil, err
	}
	// Blobs first: they are what the cache may lose first.
	for _, kind := range []plumbing.ObjectType{plumbing.BlobObject, plumbing.TreeObject, plumbing.CommitObject} {
		for h, o := range got {
			if o.kind == kind {
				r.cache.put(h, o)
			}
		}
	}
	return got, nil
}

// fetchObjects fetches trees and blobs by hash. From a remote that does not allow
// that, it fetches the tip that they belong to as a whole.
func (r *Repository) fetchObjects(ctx context.Context, tip plumbing.Hash, wants []plumbing.Hash) (map[plumbing.Hash]object, error) {
	missing := func(got map[plumbing.Hash]object) (plumbing.Hash, bool) {
		for _, h := range wants {
			if _, ok := got[h]; !ok {
				return h, true
			}
		}
		return plumbing.ZeroHash, false
	}
	got, err := r.fetch(ctx, nil, false, fetchRequest{wants: wants, filter: filterBlobs})
	if err != nil && !errors.Is(err, errNotThere) {
		return nil, err
	}
	if _, some := missing(got); err == nil && !some {
		return got, nil
	}
	if tip.IsZero() {
		return nil, notThere(wants[0])
	}
	got, err = r.fetch(ctx, nil, true, fetchRequest{wants: []plumbing.Hash{tip}, depth: 1})
	if err != nil {
		return nil, err
	}
	if h, some := missing(got); some {
		return nil, notThere(h)
	}
	return got, nil
}

const (
	// maxHistory is how far back a commit is looked for at first, where commits can be
	// fetched without what they hold.
	maxHistory = 1000
	// maxFullHistory where they cannot.
	maxFullHistory = 50
	// deeper is by how much it is looked further each time.
	deeper = 8
)

// sought is a commit that may have landed. If it is known what it was made on, zero
// being a branch that was not there, it is above that or nowhere; else nobody knows how
// far back it could be.
type sought struct {
	hash, onto plumbing.Hash
	known      bool
}

// reachable returns those of the commits that the tip descends from, or is. It looks
// as far back as it takes to be certain, and a bounded way for those that were made on
// nobody knows what. The commits in haves end what is fetched.
func (r *Repository) reachable(ctx context.Context, tip plumbing.Hash, wanted []sought, haves []plumbing.Hash) (map[plumbing.Hash]bool, error) {
	if tip.IsZero() || len(wanted) == 0 {
		return map[plumbing.Hash]bool{}, nil
	}
	var searches []search
	certain := true
	for _, one := range wanted {
		certain = certain && one.known
		i := slices.IndexFunc(searches, func(s search) bool { return s.end == one.onto })
		if i < 0 {
			i, searches = len(searches), append(searches, search{wanted: map[plumbing.Hash]bool{}, end: one.onto})
		}
		searches[i].wanted[one.hash] = true
	}
	history := map[plumbing.Hash]object{}
	for depth := 0; ; depth *= deeper {
		found, complete := map[plumbing.Hash]bool{}, true
		for _, one := range searches {
			all, err := one.back(tip, found, func(h plumbing.Hash) (object, bool) {
				if commit, ok := r.cache.get(h); ok {
					return commit, true
				}
				commit, ok := history[h]
				return commit, ok
			})
			if err != nil {
				return nil, err
			}
			complete = complete && all
		}
		if complete || depth > 0 && !certain {
			return found, nil
		}
		s, err := r.transport.open(ctx, uploadPack, true)
		if err != nil {
			return nil, err
		}
		if depth == 0 {
			if depth = maxHistory; !s.advertised().capabilities.has("filter") {
				depth = maxFullHistory
			}
		}
		before := len(history)
		history, err = r.fetch(ctx, s, true, fetchRequest{wants: []plumbing.Hash{tip}, haves: haves, depth: depth, filter: filterTrees})
		s.close()
		if err != nil {
			return nil, err
		}
		if before > 0 && len(history) <= before {
			return found, nil // the remote has no more
		}
	}
}

// search looks for commits that were made on one. Those that were made on others are
// looked for by themselves: they may well be below it.
type search struct {
	wanted map[plumbing.Hash]bool
	// end is the commit below which none of them is; zero if there is none.
	end plumbing.Hash
}

// back goes from the tip as far as get knows commits, and adds to found. complete says
// that all were found, or that there was nothing that get does not know.
func (w search) back(tip plumbing.Hash, found map[plumbing.Hash]bool, get func(plumbing.Hash) (object, bool)) (complete bool, err error) {
	complete = true
	left := len(w.wanted)
	seen := map[plumbing.Hash]bool{tip: true}
	for queue := []plumbing.Hash{tip}; len(queue) > 0; queue = queue[1:] {
		h := queue[0]
		if w.wanted[h] {
			found[h] = true
			if left--; left == 0 {
				return true, nil
			}
		}
		if h == w.end {
			continue
		}
		commit, ok := get(h)
		if !ok {
			complete = false
			continue
		}
		_, parents, err := commitHeader(commit.data)
		if err != nil {
			return false, fmt.Errorf("commit %s: %w", h, err)
		}
		for _, p := range parents {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return complete, nil
}
