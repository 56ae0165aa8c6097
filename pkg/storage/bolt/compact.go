// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// compactionStep bounds what one batch deletes, so that writers wait for
// milliseconds at most.
const compactionStep = 1000

// Compact forgets the history of gr up to rev: what was there at rev, and all
// that happened after it, stay readable. It returns when that is on disk. A
// revision that does not exist yet is an error, one already compacted is not.
func (db *DB) Compact(ctx context.Context, gr schema.GroupResource, rev uint64) error {
	r, err := db.resource(gr)
	if err != nil {
		return err
	}
	return r.compact(ctx, rev)
}

func (r *resource) compact(ctx context.Context, rev uint64) error {
	// Only what is published may go: reads below it are refused, and no read
	// is ever at more than that.
	if current := r.feed.revision(); rev > current {
		return &futureError{asked: rev, current: current}
	}
	for r.compacted.Load() < rev {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.db.submit(0, func(b *batch) error {
			p, err := b.resource(r)
			if err != nil {
				return err
			}
			return p.compact(rev)
		}); err != nil {
			return fmt.Errorf("compacting %s to revision %d: %w", r.name, rev, err)
		}
	}
	return nil
}

// compact deletes one step's worth of records up to rev.
func (p *pending) compact(rev uint64) error {
	if rev <= p.summary.compacted {
		return nil
	}
	p.b.dirty = true
	type entry struct {
		rev uint64
		key string
	}
	var old []entry
	reached := rev
	c := p.log.Cursor()
	for k, b := c.First(); k != nil && parseRevision(k) <= rev; k, b = c.Next() {
		if len(old) == compactionStep {
			reached = old[len(old)-1].rev
			break
		}
		e := entry{rev: parseRevision(k)}
		if r, err := decodeRecord(e.rev, b); err == nil {
			e.key = r.key
		} else if e.key, err = p.keyOf(e.rev); err != nil {
			return err
		}
		old = append(old, e)
	}
	for _, e := range old {
		p.summary.history.toggle(e.key, e.rev)
		if err := errors.Join(p.log.Delete(revisionKey(e.rev)), p.hist.Delete(historyKey(e.key, e.rev))); err != nil {
			return err
		}
	}
	p.summary.compacted = reached
	return nil
}

// keyOf finds the key of a damaged record in the index. What cannot be read must
// not keep the rest of the history from going, and itself goes with it.
func (p *pending) keyOf(rev uint64) (string, error) {
	c := p.hist.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if key, at, ok := splitHistoryKey(k); ok && at == rev {
			return string(key), nil
		}
	}
	return "", &damage{what: fmt.Sprintf("history at revision %d", rev)}
}

// compactLoop keeps each resource's history within its bounds. A failed round is
// logged and the next one tries again.
func (db *DB) compactLoop(ctx context.Context) {
	ticker := time.NewTicker(db.config.History.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			db.compactAll(ctx, now)
		}
	}
}

func (db *DB) compactAll(ctx context.Context, now time.Time) {
	if db.health.Load().err != nil {
		db.probe(ctx)
	}
	for _, r := range db.allResources() {
		rev, err := r.compactionTarget(now)
		if err == nil {
			err = r.compact(ctx, rev)
		}
		var closed *ClosedError
		if err != nil && ctx.Err() == nil && !errors.As(err, &closed) {
			klog.FromContext(ctx).Error(err, "Compaction failed, will be tried again", "resource", r.name)
			return
		}
	}
	db.stats.compacted(now)
}

// probe writes the format again, so that readiness returns by itself when the
// disk has space again.
func (db *DB) probe(ctx context.Context) {
	if err := db.submit(0, func(b *batch) error {
		b.dirty = true
		meta := b.tx.Bucket(metaBucket)
		return meta.Put(formatKey, append([]byte(nil), meta.Get(formatKey)...))
	}); err != nil {
		klog.FromContext(ctx).Error(err, "Storage is still not writable")
	}
}

// compactionTarget is the newest revision whose record is too old, or one too many.
func (r *resource) compactionTarget(now time.Time) (uint64, error) {
	history := r.db.config.History
	oldest := now.Add(-history.MaxAge).UnixNano()
	var target uint64
	err := r.read(0, func(v *view) error {
		target = v.compacted
		if v.at > history.MaxEvents {
			target = max(target, v.at-history.MaxEvents)
		}
		c := v.log.Cursor()
		for k, b := c.Seek(revisionKey(target + 1)); k != nil && parseRevision(k) <= v.at; k, b = c.Next() {
			record, err := decodeRecord(parseRevision(k), b)
			if err != nil {
				continue // of unknown age: it goes with the next one
			}
			if record.at > oldest {
				break
			}
			target = parseRevision(k)
		}
		return nil
	})
	return target, err
}
