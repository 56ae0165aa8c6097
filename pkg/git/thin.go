// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

// A thin pack holds deltas of objects that the remote has: one changed entry of a
// directory costs some bytes, whatever the size of the directory. Bases are
// objects that the old tip holds at the same path, which the compare-and-swap
// makes sure the remote has when it moves the branch; never objects of the same
// push, so that there are no chains.

// thinPacks is what is known of how a remote takes them. Safe for concurrent use.
type thinPacks struct {
	mu sync.Mutex // protects the fields below
	// taken: one was, so that a broken exchange has other reasons.
	taken bool
	// refused: where one did not land, the same commits landed without deltas.
	refused bool
}

func (t *thinPacks) learn(taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken, t.refused = taken, !taken
}

// worthATry: the remote does not say that it wants none, and never refused one.
func (t *thinPacks) worthATry(caps capabilities) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.refused && !caps.has("no-thin")
}

// blamed says whether a thin pack may be the reason why nothing landed: the
// report says that the pack could not be unpacked; or there is no report and no
// thin pack has ever been taken. A remote that asks to be left alone is.
func (t *thinPacks) blamed(rep report, seemed error) bool {
	if rep.refused {
		return rep.unpackFailed
	}
	t.mu.Lock()
	taken := t.taken
	t.mu.Unlock()
	if taken {
		return false
	}
	if unreachable, ok := errors.AsType[*UnreachableError](seemed); ok {
		return unreachable.RetryAfter == 0
	}
	// Words of the remote, and no line about our ref.
	said, ok := errors.AsType[*RefusedError](seemed)
	return ok && said.Ref != ""
}

// deliver sends the new objects with the update and decides what became of it,
// as settle does. What did not land as a thin pack, with the branch where it was,
// is sent once more without deltas: the same commits, so it cannot land twice.
func (p *push) deliver(ctx context.Context, u update, built []Built, objects []newObject) error {
	bases := p.r.cache.get
	if !p.r.thin.worthATry(p.session.advertised().capabilities) {
		bases = nil
	}
	pack, thin, err := p.encode(objects, bases)
	if err != nil {
		return err
	}
	u.pack = pack
	rep, seemed := p.send(ctx, u)
	err = p.settle(ctx, u, seemed)
	if err != nil && !refused(seemed) {
		p.unclear = append(p.unclear, built)
	}
	switch {
	case thin && seemed == nil:
		p.r.thin.learn(true)
	case thin && err != nil && p.session != nil && p.tip() == u.old && p.r.thin.blamed(rep, seemed):
		if u.pack, _, err = p.encode(objects, nil); err != nil {
			return err
		}
		_, seemed = p.send(ctx, u)
		if err = p.settle(ctx, u, seemed); err != nil && !refused(seemed) {
			p.unclear = append(p.unclear, built)
		}
		if seemed == nil {
			p.r.thin.learn(false)
		}
	}
	return err
}

// encode packs objects, as deltas where that pays and base has what they are
// made from. thin says whether there is any delta.
func (p *push) encode(objects []newObject, base func(plumbing.Hash) (object, bool)) (pack []byte, thin bool, err error) {
	entries := make([]packed, len(objects))
	for i, o := range objects {
		entries[i].object = o.object
		if base == nil || o.base.IsZero() {
			continue
		}
		if from, ok := base(o.base); ok {
			if d, ok := delta(from, o.object); ok {
				entries[i] = packed{object{plumbing.REFDeltaObject, d}, o.base}
				thin = true
			}
		}
	}
	pack, err = encodePack(entries, &p.r.deflate)
	return pack, thin, err
}
