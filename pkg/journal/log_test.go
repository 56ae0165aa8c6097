// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

const ttl = 10 * time.Minute

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func open(t *testing.T, path string) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(t.Context(), bolt.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func appendAll(t *testing.T, l *journal.Log, now time.Time, records ...string) {
	t.Helper()
	for _, r := range records {
		if err := l.Append(now, []byte(r)); err != nil {
			t.Fatal(err)
		}
	}
}

// replayed are the records, each with its age in minutes.
func replayed(t *testing.T, l *journal.Log, now time.Time) []string {
	t.Helper()
	var got []string
	if err := l.Replay(now, func(at time.Time, record []byte) error {
		got = append(got, fmt.Sprintf("%s %v", record, now.Sub(at).Minutes()))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("replayed are %q, want %q", got, want)
	}
}

// D1: what was appended is there after a restart, in order, as long as it is in
// time.
func TestD1RecordsSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db := open(t, path)
	facts, others := journal.NewLog(db, "facts", ttl), journal.NewLog(db, "others", ttl)
	want(t, replayed(t, facts, start))
	appendAll(t, facts, start, "a", "b")
	appendAll(t, others, start, "x")
	appendAll(t, facts, start.Add(5*time.Minute), "c", "")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	facts = journal.NewLog(open(t, path), "facts", ttl)
	want(t, replayed(t, facts, start.Add(6*time.Minute)), "a 6", "b 6", "c 1", " 1")
	want(t, replayed(t, facts, start.Add(10*time.Minute)), "c 5", " 5")
	appendAll(t, facts, start.Add(7*time.Minute), "d")
	want(t, replayed(t, facts, start.Add(12*time.Minute)), "c 7", " 7", "d 5")
}

func keys(t *testing.T, db *bolt.DB) int {
	t.Helper()
	n := 0
	if err := db.View(func(tx *bbolt.Tx) error {
		n = tx.Bucket([]byte("journal/facts")).Stats().KeyN
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// What is out of time leaves the file, a bounded number at a time; also after the
// clock was set back, or a record was damaged.
func TestRecordsAreForgotten(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "kommit.db"))
	l := journal.NewLog(db, "facts", ttl)
	var writers sync.WaitGroup // one fsync for many
	for i := range 1000 {
		writers.Go(func() {
			if err := l.Append(start, fmt.Append(nil, i)); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if n := keys(t, db); n != 1000 {
		t.Fatalf("%d records, want 1000", n)
	}
	now := start.Add(ttl)
	appendAll(t, l, now, "first")
	if n := keys(t, db); n > 1000 || n < 700 {
		t.Errorf("%d records are left after one append", n)
	}
	appendAll(t, l, now, "2", "3", "4", "5")
	if n := keys(t, db); n != 5 {
		t.Errorf("%d records are left, want 5", n)
	}
	back := now.Add(-time.Hour)
	appendAll(t, l, back, "after the clock was set back")
	want(t, replayed(t, l, back), "after the clock was set back 0")
	if n := keys(t, db); n != 1 {
		t.Errorf("%d records are left, want 1", n)
	}
}

func TestDamagedRecordIsNamedAndTheOthersAreThere(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "kommit.db"))
	l := journal.NewLog(db, "facts", ttl)
	appendAll(t, l, start, "a", "b", "c")
	if err := db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("journal/facts"))
		key := []byte{0, 0, 0, 0, 0, 0, 0, 2}
		value := slices.Clone(bucket.Get(key))
		value[len(value)-1] ^= 1
		return bucket.Put(key, value)
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := l.Replay(start, func(_ time.Time, record []byte) error {
		got = append(got, string(record))
		return nil
	})
	if damaged, ok := errors.AsType[*journal.DamagedError](err); !ok || damaged.Record != 2 {
		t.Errorf("got %v, want a *DamagedError about record 2", err)
	}
	want(t, got, "a", "c")
	stop := errors.New("enough")
	if err := l.Replay(start, func(time.Time, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v, want f's error", err)
	}
}

// A record that could not be written is not there, and whoever wrote it is told.
func TestFailedAppendSaysSo(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "kommit.db"))
	l := journal.NewLog(db, "facts", ttl)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*bolt.ClosedError](l.Append(start, []byte("a"))); !ok {
		t.Error("an append to a closed file succeeded")
	}
}
