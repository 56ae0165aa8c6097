// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journal keeps what must survive a kill -9 until it is done with
// (DESIGN 8), in the file that holds the API objects.
//
// A write returns when it is on disk, and shares its fsync with whoever writes at
// the same time (D4). So whoever answers somebody after it has promised nothing
// that a crash can take back.
package journal

import (
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// Store is a file with transactions that are on disk when Update returns. What it
// runs may run more than once, and undoes its part by an error. *bolt.DB is one.
type Store interface {
	Update(func(*bbolt.Tx) error) error
	View(func(*bbolt.Tx) error) error
}

// maxForgotten bounds what one Append removes, so that none takes long after a
// crowded time.
const maxForgotten = 256

// Log keeps records in the order in which they were written, each for a limited
// time. Safe for concurrent use.
type Log struct {
	store  Store
	bucket []byte
	ttl    time.Duration
}

// NewLog returns the log of that name, whose records are kept for ttl. Nothing is
// written before the first Append.
func NewLog(store Store, name string, ttl time.Duration) *Log {
	return &Log{store: store, bucket: []byte("journal/" + name), ttl: ttl}
}

// Append writes a record of that time, and returns when it is on disk. It also
// removes what is out of time. Errors are those of the store: the record is not
// there then.
func (l *Log) Append(now time.Time, record []byte) error {
	return l.store.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(l.bucket)
		if err != nil {
			return err
		}
		if err := l.forget(bucket, now); err != nil {
			return err
		}
		sequence, err := bucket.NextSequence()
		if err != nil {
			return err
		}
		// Records come in the order of their keys: full pages save half of the file.
		bucket.FillPercent = 1
		return bucket.Put(binary.BigEndian.AppendUint64(nil, sequence), encode(now, record))
	})
}

// forget removes the oldest records as far as they are out of time.
func (l *Log) forget(bucket *bbolt.Bucket, now time.Time) error {
	cursor := bucket.Cursor()
	for key, value := cursor.First(); key != nil; key, value = cursor.Next() {
		if at, _, err := decode(value); err == nil && l.inTime(at, now) {
			return nil
		}
		if err := cursor.Delete(); err != nil {
			return err
		}
		if binary.BigEndian.Uint64(key)%maxForgotten == 0 {
			return nil
		}
	}
	return nil
}

// inTime: a record of a far future was written before the clock was set back, and
// would otherwise keep all behind it.
func (l *Log) inTime(at, now time.Time) bool {
	return at.Add(l.ttl).After(now) && now.Add(l.ttl).After(at)
}

// Replay calls f with each record that is in time, in the order in which they were
// written. The record is f's to keep. An error of f ends it and is returned; others
// are those of the store, and *DamagedError for a record that makes no sense, after
// f was called with all others.
func (l *Log) Replay(now time.Time, f func(at time.Time, record []byte) error) error {
	type entry struct {
		at     time.Time
		record []byte
	}
	var entries []entry
	var damaged error
	if err := l.store.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(l.bucket)
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(key, value []byte) error {
			at, record, err := decode(value)
			switch {
			case err != nil:
				damaged = &DamagedError{Log: string(l.bucket), Record: binary.BigEndian.Uint64(key)}
			case l.inTime(at, now):
				entries = append(entries, entry{at, append([]byte(nil), record...)})
			}
			return nil
		})
	}); err != nil {
		return err
	}
	for _, e := range entries {
		if err := f(e.at, e.record); err != nil {
			return err
		}
	}
	return damaged
}

// DamagedError names a record or a row that is not as it was written.
type DamagedError struct {
	// Log, Table or Rows that it is of.
	Log    string
	Record uint64
	// Key of the row, where there are keys.
	Key string
}

func (e *DamagedError) Error() string {
	if e.Key != "" {
		return fmt.Sprintf("row %s of %s is damaged", e.Key, e.Log)
	}
	return fmt.Sprintf("record %d of %s is damaged", e.Record, e.Log)
}
