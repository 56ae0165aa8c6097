// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"time"

	"go.etcd.io/bbolt"
)

// Table keeps values by key, in groups that come and go as a whole: what would cost
// much to find out again, and is found out again when it is lost. Safe for
// concurrent use.
type Table struct {
	store  Store
	bucket []byte
}

// NewTable returns the table of that name. Nothing is written before the first
// Change.
func NewTable(store Store, name string) *Table {
	return &Table{store: store, bucket: []byte("journal/" + name)}
}

// Load returns the values of a group, but for those that are not as they were
// written. They are the caller's.
func (t *Table) Load(group string) (map[string][]byte, error) {
	values := map[string][]byte{}
	err := t.store.View(func(tx *bbolt.Tx) error {
		table := tx.Bucket(t.bucket)
		if table == nil {
			return nil
		}
		rows := table.Bucket([]byte(group))
		if rows == nil {
			return nil
		}
		return rows.ForEach(func(key, row []byte) error {
			if _, value, err := decode(row); err == nil {
				values[string(key)] = append([]byte(nil), value...)
			}
			return nil
		})
	})
	return values, err
}

// Change sets some keys of a group and drops others, all or nothing, and returns
// when that is on disk.
func (t *Table) Change(group string, set map[string][]byte, dropped []string) error {
	return t.store.Update(func(tx *bbolt.Tx) error {
		table, err := tx.CreateBucketIfNotExists(t.bucket)
		if err != nil {
			return err
		}
		rows, err := table.CreateBucketIfNotExists([]byte(group))
		if err != nil {
			return err
		}
		for key, value := range set {
			if err := rows.Put([]byte(key), encode(time.Unix(0, 0), value)); err != nil {
				return err
			}
		}
		for _, key := range dropped {
			if err := rows.Delete([]byte(key)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Drop forgets a group.
func (t *Table) Drop(group string) error {
	return t.store.Update(func(tx *bbolt.Tx) error {
		table := tx.Bucket(t.bucket)
		if table == nil || table.Bucket([]byte(group)) == nil {
			return nil
		}
		return table.DeleteBucket([]byte(group))
	})
}
