// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"
)

// operation is what happens to a row.
type operation int

const (
	put operation = iota
	remove
	removeAll
)

// Step is one step of a commit. See Put, Delete and DeleteAll.
type Step struct {
	operation operation
	key       string
	value     []byte
}

// Put sets a row. The value must not be written to any more.
func Put(key string, value []byte) Step { return Step{operation: put, key: key, value: value} }

// Delete removes a row, if it is there.
func Delete(key string) Step { return Step{operation: remove, key: key} }

// DeleteAll removes all rows whose keys begin with prefix.
func DeleteAll(prefix string) Step { return Step{operation: removeAll, key: prefix} }

// Rows is where rows are kept, by key. Implementations are safe for concurrent use.
type Rows interface {
	// Commit carries steps out in their order, all or nothing, and returns when that is
	// on disk (D4).
	Commit(ctx context.Context, steps []Step) error
	// Scan calls f with each row whose key begins with prefix, in the order of the keys.
	// The value is only valid during the call. An error of f ends the scan and is
	// returned; a row that is not as it was written is left out, and named by a
	// *DamagedError after f has seen the others.
	Scan(ctx context.Context, prefix string, f func(key string, value []byte) error) error
}

// boltRows keeps rows in a bucket.
type boltRows struct {
	store  Store
	bucket []byte
}

var _ Rows = boltRows{}

// NewRows returns the rows of that name in a store. Nothing is written before the
// first Commit.
func NewRows(store Store, name string) Rows {
	return boltRows{store: store, bucket: []byte("journal/" + name)}
}

// Commit implements Rows.
func (r boltRows) Commit(_ context.Context, steps []Step) error {
	return r.store.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(r.bucket)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if err := step.apply(bucket); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s Step) apply(bucket *bbolt.Bucket) error {
	key := []byte(s.key)
	switch s.operation {
	case put:
		return bucket.Put(key, encode(time.Unix(0, 0), s.value))
	case remove:
		return bucket.Delete(key)
	case removeAll:
	}
	// A cursor may skip a row after a deletion: the keys are read first.
	var keys [][]byte
	cursor := bucket.Cursor()
	for k, _ := cursor.Seek(key); k != nil && bytes.HasPrefix(k, key); k, _ = cursor.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		if err := bucket.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// Scan implements Rows.
func (r boltRows) Scan(_ context.Context, prefix string, f func(key string, value []byte) error) error {
	var damaged error
	err := r.store.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(r.bucket)
		if bucket == nil {
			return nil
		}
		cursor := bucket.Cursor()
		for k, row := cursor.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, row = cursor.Next() {
			_, value, err := decode(row)
			if err != nil {
				damaged = &DamagedError{Log: string(r.bucket), Key: string(k)}
				continue
			}
			if err := f(string(k), value); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, damaged)
}
