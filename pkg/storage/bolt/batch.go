// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/klog/v2"
)

// Bounds of one batch: past them the next commit takes over, so that no writer
// waits for an unbounded one.
const (
	maxBatchOperations = 1024
	maxBatchBytes      = 16 << 20
)

// operation is one writer's part of a batch. apply may run more than once, in
// different transactions, and only its last run counts.
type operation struct {
	apply func(*batch) error
	size  int
	err   error
	done  chan struct{}
}

// submit hands apply to the committer and returns once its batch is on disk, or
// refused, or failed. Nobody is answered before the fsync (D4).
func (db *DB) submit(size int, apply func(*batch) error) error {
	return db.submitAnd(size, apply, func() {})
}

// submitAnd is submit that spends the time in meanwhile.
func (db *DB) submitAnd(size int, apply func(*batch) error, meanwhile func()) error {
	op := &operation{apply: apply, size: size, done: make(chan struct{})}
	select {
	case db.operations <- op:
		runtime.Gosched() // the commit takes longer: it goes first
		meanwhile()
		<-op.done
		return op.err
	case <-db.closing:
		return &ClosedError{Path: db.path}
	}
}

// commitLoop is the only writer. While one batch is being synced the next
// writers queue up at the channel, and all of them make the next batch: many
// share one fsync, and a lone one waits for nothing.
func (db *DB) commitLoop() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // tryCommit recovers
	for {
		select {
		case op := <-db.operations:
			db.commit(db.gather(op))
		case <-db.closing:
			return
		}
	}
}

func (db *DB) gather(first *operation) []*operation {
	ops, size := []*operation{first}, first.size
	for len(ops) < maxBatchOperations && size < maxBatchBytes {
		select {
		case op := <-db.operations:
			ops = append(ops, op)
			size += op.size
		default:
			return ops
		}
	}
	return ops
}

func (db *DB) commit(ops []*operation) {
	for len(ops) > 0 {
		failed, err := db.tryCommit(ops)
		if failed < 0 {
			for _, op := range ops {
				if op.err == nil {
					op.err = err
				}
				close(op.done)
			}
			return
		}
		// bbolt has no savepoint: what the failed one had written is undone by
		// starting over without it.
		op := ops[failed]
		op.err = err
		close(op.done)
		ops = append(ops[:failed:failed], ops[failed+1:]...)
	}
}

// tryCommit returns the index of the operation that spoiled the transaction, or
// -1 and the outcome of the commit.
func (db *DB) tryCommit(ops []*operation) (failed int, err error) {
	if broken := db.broken(); broken != nil {
		return -1, broken
	}
	tx, err := db.bolt.Begin(true)
	if err != nil {
		return -1, db.beginError(err)
	}
	defer func() {
		// bbolt panics on pages it cannot make sense of. The lock it holds
		// must not outlive that, or every reader of a remapped file hangs.
		if p := recover(); p != nil {
			failed, err = -1, &CorruptFileError{Path: db.path, Err: fmt.Errorf("%v", p)}
			klog.ErrorS(err, "Storage transaction panicked", "stack", string(debug.Stack()))
			db.health.Store(&health{err: err, sticky: true})
			_ = tx.Rollback()
		}
	}()

	b := &batch{db: db, tx: tx, now: time.Now(), touched: map[*resource]*pending{}}
	for i, op := range ops {
		op.err = nil
		if err := op.apply(b); err != nil {
			var r refusal
			if !errors.As(err, &r) {
				return i, errors.Join(db.damaged(err), tx.Rollback())
			}
			op.err = r.error
		}
	}
	if !b.dirty {
		return -1, tx.Rollback()
	}
	for _, p := range b.touched {
		if err := p.flush(); err != nil {
			return -1, errors.Join(err, tx.Rollback())
		}
	}
	start, id := time.Now(), tx.ID()
	if err := tx.Commit(); err != nil {
		err = db.commitFailure(id, err)
		db.health.Store(&health{err: err})
		return -1, err
	}
	db.health.Store(&health{})
	db.stats.committed(len(ops), time.Since(start))
	// Only now is any of it visible: a reader, too, must never see what a
	// power cut could still take back.
	for _, p := range b.touched {
		p.publish()
	}
	if b.expires {
		db.wakeExpiry()
	}
	return -1, nil
}

// commitFailure types why the commit of transaction id failed.
func (db *DB) commitFailure(id int, err error) error {
	var errno syscall.Errno
	last, broken := db.lastTransaction()
	switch {
	case broken != nil:
		return errors.Join(broken, err)
	case last >= id:
		// The new root is in the file, only not known to be on the disk: the
		// next commit builds on it, a power cut may take it back.
		return &WriteError{Path: db.path, Err: err}
	case !errors.As(err, &errno):
		// bbolt keeps only the words of an error from growing the file.
		err = errors.Join(err, db.grow())
	}
	return commitError(db.path, err)
}

func (db *DB) lastTransaction() (id int, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	})
	return id, err
}

// grow does what bbolt does before it writes past the end of the file, for the
// sake of the error. Only the committer may call it.
func (db *DB) grow() error {
	f, err := os.OpenFile(db.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(info.Size()+int64(db.bolt.AllocSize)), f.Sync())
}

// batch is the transaction that operations write into.
type batch struct {
	db      *DB
	tx      *bbolt.Tx
	now     time.Time
	touched map[*resource]*pending
	dirty   bool // something was written
	expires bool // something with a time to live was written
}

// pending is what a batch does to one resource.
type pending struct {
	b                        *batch
	r                        *resource
	root, objects, log, hist *bbolt.Bucket
	from, rev                uint64 // before the batch, and so far
	summary                  summary
	events                   []*event
}

func (b *batch) resource(r *resource) (*pending, error) {
	if p, ok := b.touched[r]; ok {
		return p, nil
	}
	buckets, err := openResource(b.tx, r.name)
	if err != nil {
		return nil, err
	}
	s, err := readSummary(buckets.root, r.name)
	if err != nil {
		return nil, err
	}
	p := &pending{
		b: b, r: r,
		root: buckets.root, objects: buckets.objects, log: buckets.log, hist: buckets.history,
		from: buckets.root.Sequence(), rev: buckets.root.Sequence(),
		summary: s,
	}
	// Revisions only grow, so full pages at the end are never split again.
	p.log.FillPercent = 0.95
	b.touched[r] = p
	return p, nil
}

// bump uses up one revision without an event.
func (p *pending) bump() uint64 {
	p.b.dirty = true
	p.rev++
	return p.rev
}

// put stores value under key at a new revision. want is the revision that the
// key must be at, 0 that it must not exist. The errors are refusals.
func (p *pending) put(key string, value []byte, want uint64, expiry int64) (uint64, error) {
	old, err := p.current(key)
	if err != nil {
		return 0, err
	}
	switch {
	case want == 0 && old.rev != 0:
		return 0, refusal{errExists}
	case want != old.rev:
		return 0, refusal{errConflict}
	}
	rev := p.bump()
	stored, value := encodeObject(key, object{rev: rev, expiry: expiry, value: value})
	if err := p.append(record{key: key}, old, rev); err != nil {
		return 0, err
	}
	if err := p.objects.Put([]byte(key), stored); err != nil {
		return 0, err
	}
	if err := p.moveExpiry(key, old.expiry, expiry); err != nil {
		return 0, err
	}
	p.count(key, old, -1)
	p.count(key, object{rev: rev, size: len(value)}, 1)
	p.events = append(p.events, &event{rev: rev, key: key, created: old.rev == 0, value: value, prevValue: old.value})
	return rev, nil
}

// delete removes key, which must be at revision want.
func (p *pending) delete(key string, want uint64) (uint64, error) {
	old, err := p.current(key)
	if err != nil {
		return 0, err
	}
	if old.rev == 0 || old.rev != want {
		return 0, refusal{errConflict}
	}
	rev := p.bump()
	if err := p.append(record{key: key, deleted: true}, old, rev); err != nil {
		return 0, err
	}
	if err := p.objects.Delete([]byte(key)); err != nil {
		return 0, err
	}
	if err := p.moveExpiry(key, old.expiry, 0); err != nil {
		return 0, err
	}
	p.count(key, old, -1)
	p.events = append(p.events, &event{rev: rev, key: key, deleted: true, prevValue: old.value})
	return rev, nil
}

// count adds an object to the summary, or with -1 takes it out.
func (p *pending) count(key string, o object, by int64) {
	if o.rev != 0 {
		p.summary.count += by
		p.summary.bytes += by * int64(o.size)
		p.summary.objects.toggle(key, o.rev)
	}
}

// current is the object at key, its value copied: the pages it lies in may move
// as soon as the transaction writes.
func (p *pending) current(key string) (object, error) {
	b := p.objects.Get([]byte(key))
	if b == nil {
		return object{}, nil
	}
	return decodeObject([]byte(key), bytes.Clone(b))
}

func (p *pending) append(r record, old object, rev uint64) error {
	r.at, r.prevRev, r.prevValue = p.b.now.UnixNano(), old.rev, old.value
	if err := p.log.Put(revisionKey(rev), encodeRecord(rev, r)); err != nil {
		return err
	}
	p.summary.history.toggle(r.key, rev)
	return p.hist.Put(historyKey(r.key, rev), nil)
}

func (p *pending) moveExpiry(key string, from, to int64) error {
	if from == to {
		return nil
	}
	expiries := p.b.tx.Bucket(expiryBucket)
	if from != 0 {
		if err := expiries.Delete(expiryKey(from, p.r.name, key)); err != nil {
			return err
		}
	}
	if to != 0 {
		p.b.expires = true
		return expiries.Put(expiryKey(to, p.r.name, key), nil)
	}
	return nil
}

func (p *pending) flush() error { return p.summary.write(p.root, p.r.name, p.rev) }

func (p *pending) publish() {
	p.r.counters.Store(&p.summary.counters)
	p.r.compacted.Store(p.summary.compacted)
	p.b.db.cache.forget(p.events)
	p.r.feed.publish(p.from, p.rev, p.events)
}
