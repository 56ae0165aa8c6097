// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxReplays is how often one Push makes its commits anew because the branch
// moved.
const maxReplays = 5

// Push makes the commits one on another on the branch's tip, and moves the branch
// to the last of them, if it is still where it was (G2). It is never forced; a
// branch that moved is read again and the commits are made anew on its new tip
// (G3), at most maxReplays times.
//
// record is called, each time the commits were made anew, with their hashes
// before any of them is sent; its error ends the push. It is not called, and
// nothing is sent, when there is nothing to commit.
//
// The result has one Built for each commit. With a nil error its hashes are on
// the branch. Otherwise the error is
//
//   - *RefusedError, *UnauthorizedError, *HostKeyError, *SecretError or
//     *UnsupportedError: they are not there. A refused batch is better sent one by
//     one, for one commit spoils all (G6);
//   - ErrMoved: they are not there, and others were quicker each time;
//   - *UnreachableError, or the context's: it could not be learnt whether they are
//     there. Give the recorded hashes to the next Push (Commit.Recorded);
//   - what Config.Credentials or Config.Signer returned, wrapped, or a *SecretError
//     about the key that they gave: nothing was sent.
func (r *Repository) Push(ctx context.Context, branch string, commits []Commit, record func([]Built) error) ([]Built, error) {
	if err := CheckBranch(branch); err != nil {
		return nil, err
	}
	p := &push{r: r, branch: branch, commits: commits, record: record, sign: r.signing()}
	defer p.end()
	if err := p.read(ctx); err != nil {
		return nil, err
	}
	for replays := 0; ; replays++ {
		built, err := p.attempt(ctx)
		if !errors.Is(err, errReplay) {
			return built, err
		}
		if replays == maxReplays {
			return nil, fmt.Errorf("%s: %w", branch, ErrMoved)
		}
		if err := pause(ctx, replays); err != nil {
			return nil, err
		}
	}
}

// errReplay says that the branch moved and was read again.
var errReplay = errors.New("replay")

// push is one call of Push. session has read where the branch is, and has not
// been used otherwise.
type push struct {
	r       *Repository
	branch  string
	commits []Commit
	record  func([]Built) error
	sign    signFunc
	session session
	// unclear are earlier attempts of this push that may have landed after all.
	unclear [][]Built
}

func (p *push) end() {
	if p.session != nil {
		p.session.close()
	}
}

// read opens a new session, and so reads where the branch is.
func (p *push) read(ctx context.Context) error {
	p.end()
	p.session = nil
	s, err := p.r.transport.open(ctx, receivePack, true)
	if err != nil {
		return err
	}
	p.session = s
	return nil
}

// tip is where the advertisement says that the branch is.
func (p *push) tip() plumbing.Hash { return p.session.advertised().tip(p.branch) }

func (p *push) attempt(ctx context.Context) ([]Built, error) {
	old := p.r.latest(p.branch, p.tip())
	built, b, err := p.build(ctx, old)
	if errors.Is(err, errNotThere) {
		// The tip was replaced before it could be fetched, or is not served yet.
		if rerr := p.read(ctx); rerr != nil {
			return nil, rerr
		}
		p.r.forgetPush(p.branch)
		if p.tip() != old {
			return nil, errReplay
		}
	}
	if err != nil {
		return nil, err
	}
	if b.tree.commit == old {
		return built, nil
	}
	for i := range built {
		built[i].Onto = old.String()
	}
	if p.record != nil {
		if err := p.record(built); err != nil {
			return nil, fmt.Errorf("recording the commits before the push: %w", err)
		}
	}
	u := update{branch: p.branch, old: old, new: b.tree.commit}
	if err := p.deliver(ctx, u, built, b.editor.objects); err != nil {
		return nil, err
	}
	for _, o := range b.editor.objects {
		p.r.cache.put(o.hash, o.object)
	}
	p.r.landed(p.branch, u.old, u.new)
	return built, nil
}

// build makes the commits on a tip, but for those that are on the branch already.
func (p *push) build(ctx context.Context, tip plumbing.Hash) ([]Built, *builder, error) {
	var recorded []sought
	for i := range p.commits {
		for _, earlier := range p.earlier(i) {
			recorded = append(recorded, sought{
				hash: plumbing.NewHash(earlier.Hash), onto: plumbing.NewHash(earlier.Onto), known: earlier.Onto != "",
			})
		}
	}
	there, err := p.r.reachable(ctx, tip, recorded, nil)
	if err != nil {
		return nil, nil, err
	}
	t, err := p.r.snapshot(ctx, nil, p.branch, tip)
	if err != nil {
		return nil, nil, err
	}
	b := newBuilder(t, p.sign)
	built := make([]Built, len(p.commits))
commits:
	for i, c := range p.commits {
		for _, earlier := range p.earlier(i) {
			if there[plumbing.NewHash(earlier.Hash)] {
				built[i] = Built{Hash: earlier.Hash}
				continue commits
			}
		}
		if built[i], err = b.add(ctx, c); err != nil {
			return nil, nil, err
		}
	}
	return built, b, nil
}

// earlier is what the commit may be on the branch as already.
func (p *push) earlier(i int) []Recorded {
	recorded := slices.Clone(p.commits[i].Recorded)
	for _, built := range p.unclear {
		if b := built[i]; b.Hash != "" {
			recorded = append(recorded, Recorded{Hash: b.Hash, Onto: b.Onto})
		}
	}
	return recorded
}

// refused says whether the remote itself told that an update did not happen.
func refused(err error) bool {
	var r *RefusedError
	return errors.As(err, &r)
}

// send returns nil when the report says in our ref's own line that it landed, and
// else what seems to have become of it.
func (p *push) send(ctx context.Context, u update) (report, error) {
	answer, err := p.session.exchange(ctx, u.encode(p.session.advertised().capabilities))
	if err != nil {
		return report{}, err
	}
	defer func() { _ = answer.Close() }()
	rep := readReport(answer, u.ref())
	return rep, p.judge(u, rep)
}

func (p *push) judge(u update, rep report) error {
	said := cleanText(p.session.redact(rep.describe()))
	switch {
	case rep.landed:
		return nil
	case rep.refused, rep.complete && said != "":
		return &RefusedError{Ref: u.ref(), Text: said}
	case said != "":
		return &UnreachableError{Err: fmt.Errorf("the answer to the push was cut short after: %s", said)}
	}
	return &UnreachableError{Err: fmt.Errorf("the answer to the push says nothing of %s: %w", u.ref(), io.ErrUnexpectedEOF)}
}

// settle decides what became of an update. Anything but success is believed only
// after the branch was read again (G4): nil when the commits are on it, seemed
// when it has not moved, errReplay when it has.
func (p *push) settle(ctx context.Context, u update, seemed error) error {
	if seemed == nil {
		return nil
	}
	if err := p.read(ctx); err != nil {
		return unsettled(seemed, err)
	}
	switch tip := p.tip(); {
	case tip == u.new:
		return nil
	case tip == u.old:
		return seemed
	case p.r.latest(p.branch, tip) == u.old:
		// It was set back to where it was before our own last push; or that push is
		// still unknown where we read, and something else is wrong. On what is
		// advertised the next attempt tells.
		p.r.forgetPush(p.branch)
		if refused(seemed) {
			return errReplay
		}
		return seemed
	default:
		there, err := p.r.reachable(ctx, tip, []sought{{hash: u.new, onto: u.old, known: true}}, nonZero(u.old))
		if err != nil {
			return unsettled(seemed, err)
		}
		if there[u.new] {
			return nil
		}
		return errReplay
	}
}

// unsettled: the push went wrong, and so did reading the branch again.
func unsettled(seemed, err error) error {
	var unreachable *UnreachableError
	if errors.As(seemed, &unreachable) {
		return seemed
	}
	if errors.As(err, &unreachable) {
		return err
	}
	return &UnreachableError{Err: err}
}

func nonZero(h plumbing.Hash) []plumbing.Hash {
	if h.IsZero() {
		return nil
	}
	return []plumbing.Hash{h}
}

// pause lets others finish: not at all the first time, then for a random while
// that grows.
func pause(ctx context.Context, replays int) error {
	if replays == 0 {
		return ctx.Err()
	}
	limit := 50 * time.Millisecond << replays
	t := time.NewTimer(rand.N(limit)) // #nosec G404 -- spreads load, guards nothing
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
