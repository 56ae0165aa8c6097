// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"fmt"
	"iter"
	"runtime/debug"

	"go.etcd.io/bbolt"
)

// view reads one resource as it was at one revision. It lives inside a read
// transaction, so whoever uses it copies what it needs and leaves: decoding,
// encoding and sending happen after.
type view struct {
	objects, log, history *bbolt.Bucket
	at                    uint64 // the revision shown
	newest                uint64 // the transaction's
	compacted             uint64
}

// read runs f on r at revision rev, 0 the newest. Errors: *compactedError,
// *futureError, *CorruptFileError, *ClosedError, and those of f.
func (r *resource) read(rev uint64, f func(*view) error) error {
	// bbolt shows a commit to readers before it is synced. What has been
	// published is on disk, so nobody acts on more than that.
	published := r.feed.revision()
	return r.db.read(func(tx *bbolt.Tx) error {
		buckets, err := openResource(tx, r.name)
		if err != nil {
			return err
		}
		v := &view{
			objects: buckets.objects, log: buckets.log, history: buckets.history,
			newest:    buckets.root.Sequence(),
			compacted: parseRevision(buckets.root.Get(compactedKey)),
		}
		v.at = min(published, v.newest)
		if rev != 0 {
			if rev > v.at {
				return &futureError{asked: rev, current: v.at}
			}
			v.at = rev
		}
		if v.at < v.compacted {
			return &compactedError{asked: v.at, compacted: v.compacted}
		}
		return f(v)
	})
}

// read is View for this package's own code: what bbolt panics on, and a fault
// in the mapped file, become a *CorruptFileError.
func (db *DB) read(f func(*bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &CorruptFileError{Path: db.path, Err: fmt.Errorf("%v", p)}
			db.health.Store(&health{err: err, sticky: true})
		}
	}()
	return db.damaged(db.View(f))
}

// get returns the object at key; rev 0 means there is none. The value aliases
// the file.
func (v *view) get(key string) (object, error) {
	var o object
	if b := v.objects.Get([]byte(key)); b != nil {
		var err error
		if o, err = decodeObject([]byte(key), b); err != nil {
			return object{}, err
		}
	}
	if v.at == v.newest || (o.rev != 0 && o.rev <= v.at) {
		return o, nil
	}
	next, found, err := v.replacement(key, v.at)
	if err != nil || !found {
		return v.notLater(o, err)
	}
	return object{rev: next.prevRev, value: next.prevValue}, nil
}

// notLater refuses an object written after the view's revision: the history
// must have what was there before.
func (v *view) notLater(o object, err error) (object, error) {
	if err == nil && o.rev > v.at {
		err = &damage{what: fmt.Sprintf("history at revision %d", o.rev)}
	}
	return o, err
}

func (v *view) missing(key string, rev uint64) error {
	return &damage{what: fmt.Sprintf("history of %s at revision %d", key, rev)}
}

// replacement is the first write to key after rev.
func (v *view) replacement(key string, rev uint64) (record, bool, error) {
	k, _ := v.history.Cursor().Seek(historyKey(key, rev+1))
	found, next, ok := splitHistoryKey(k)
	if !ok || string(found) != key {
		return record{}, false, nil
	}
	r, err := v.record(key, next)
	return r, err == nil, err
}

// record is what the index says was written to key at rev.
func (v *view) record(key string, rev uint64) (record, error) {
	r, err := decodeRecord(rev, v.log.Get(revisionKey(rev)))
	if err == nil && r.key != key {
		err = v.missing(key, rev)
	}
	return r, err
}

// item is one object of a walk. Both slices alias the file.
type item struct {
	key    []byte
	object object
}

// walk yields the objects in [from, end) in key order; end "" has no bound.
func (v *view) walk(from, end string) iter.Seq2[item, error] {
	if v.at == v.newest {
		return v.walkNewest(from, end)
	}
	return v.walkHistory(from, end)
}

func (v *view) walkNewest(from, end string) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		c := v.objects.Cursor()
		for k, b := c.Seek([]byte(from)); k != nil && before(k, end); k, b = c.Next() {
			o, err := decodeObject(k, b)
			if !yield(item{key: k, object: o}, err) || err != nil {
				return
			}
		}
	}
}

// walkHistory merges what is there now with what has been written since: the
// first write to a key after the revision holds what was there at it.
func (v *view) walkHistory(from, end string) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		objects, history := v.objects.Cursor(), v.history.Cursor()
		k, b := objects.Seek([]byte(from))
		h, _ := history.Seek(historyFrom(from))
		for {
			if k != nil && !before(k, end) {
				k = nil
			}
			hKey, hRev, ok := splitHistoryKey(h)
			if !ok || !before(hKey, end) {
				h, hKey = nil, nil
			}
			switch {
			case k == nil && h == nil:
				return
			case h == nil || (k != nil && bytes.Compare(k, hKey) < 0):
				o, err := decodeObject(k, b)
				o, err = v.notLater(o, err)
				if !yield(item{key: k, object: o}, err) || err != nil {
					return
				}
				k, b = objects.Next()
				continue
			}
			// hKey has a history: find its first write after the revision.
			key, replaced := hKey, uint64(0)
			for same := true; same; {
				if hRev > v.at && replaced == 0 {
					replaced = hRev
				}
				h, _ = history.Next()
				hKey, hRev, same = splitHistoryKey(h)
				same = same && bytes.Equal(hKey, key)
			}
			var o object
			var err error
			if replaced != 0 {
				var r record
				r, err = v.record(string(key), replaced)
				o = object{rev: r.prevRev, value: r.prevValue}
			} else if bytes.Equal(k, key) {
				o, err = decodeObject(k, b)
				o, err = v.notLater(o, err)
			}
			if bytes.Equal(k, key) {
				k, b = objects.Next()
			}
			if err != nil || o.rev != 0 {
				if !yield(item{key: key, object: o}, err) || err != nil {
					return
				}
			}
		}
	}
}

// events returns the writes after the given revision, oldest first, up to about
// limit bytes, and the revision up to which they are complete.
func (v *view) events(after uint64, limit int) ([]*event, uint64, error) {
	if after < v.compacted {
		return nil, 0, &compactedError{asked: after, compacted: v.compacted}
	}
	var events []*event
	c := v.log.Cursor()
	for k, b := c.Seek(revisionKey(after + 1)); k != nil; k, b = c.Next() {
		rev := parseRevision(k)
		if rev > v.at {
			break
		}
		r, err := decodeRecord(rev, b)
		if err != nil {
			return nil, 0, err
		}
		e := &event{rev: rev, key: r.key, deleted: r.deleted, created: r.prevRev == 0, prevValue: bytes.Clone(r.prevValue)}
		if !r.deleted {
			if e.value, err = v.written(r.key, rev); err != nil {
				return nil, 0, err
			}
		}
		events = append(events, e)
		if limit -= len(e.value) + len(e.prevValue); limit <= 0 {
			return events, rev, nil
		}
	}
	return events, v.at, nil
}

// written returns a copy of the value that revision rev gave to key.
func (v *view) written(key string, rev uint64) ([]byte, error) {
	if b := v.objects.Get([]byte(key)); b != nil {
		o, err := decodeObject([]byte(key), b)
		if err != nil {
			return nil, err
		}
		if o.rev == rev {
			return bytes.Clone(o.value), nil
		}
	}
	next, found, err := v.replacement(key, rev)
	if err != nil {
		return nil, err
	}
	if !found || next.prevRev != rev {
		return nil, v.missing(key, rev)
	}
	return bytes.Clone(next.prevValue), nil
}

func before(key []byte, end string) bool { return end == "" || string(key) < end }
