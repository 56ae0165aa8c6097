// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/kommit-dev/kommit/pkg/journal"
)

func scanned(t *testing.T, rows interface {
	Scan(context.Context, string, func(string, []byte) error) error
}, prefix string) map[string]string {
	t.Helper()
	got := map[string]string{}
	if err := rows.Scan(t.Context(), prefix, func(key string, value []byte) error {
		got[key] = string(value)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func wantRows(t *testing.T, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("rows are %v, want %v", got, want)
	}
}

func TestRowsSurviveARestartAndAreCarriedOutInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db := open(t, path)
	rows := journal.NewRows(db, "windows")
	wantRows(t, scanned(t, rows, ""), map[string]string{})
	commit := func(steps ...journal.Step) {
		t.Helper()
		if err := rows.Commit(t.Context(), steps); err != nil {
			t.Fatal(err)
		}
	}
	commit(journal.Put("a/1", []byte("x")), journal.Put("a/2", nil), journal.Put("ab", []byte("y")), journal.Put("b/1", []byte("z")))
	commit(journal.DeleteAll("a/"), journal.Put("a/3", []byte("after")), journal.Delete("b/1"), journal.Delete("never there"))
	commit(journal.Put("b/2", []byte("gone")), journal.Delete("b/2"), journal.Put("b/3", []byte("gone")), journal.DeleteAll("b/"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, path)
	rows = journal.NewRows(db, "windows")
	wantRows(t, scanned(t, rows, ""), map[string]string{"a/3": "after", "ab": "y"})
	wantRows(t, scanned(t, rows, "a/"), map[string]string{"a/3": "after"})
	wantRows(t, scanned(t, journal.NewRows(db, "others"), ""), map[string]string{})
}

// All rows of a prefix go, however many there are.
func TestDeleteAllLeavesNothing(t *testing.T) {
	rows := journal.NewRows(open(t, filepath.Join(t.TempDir(), "kommit.db")), "windows")
	var steps []journal.Step
	for i := range 5000 {
		steps = append(steps, journal.Put(fmt.Sprintf("c/w/%d", i), []byte(strings.Repeat("x", 100))), journal.Put(fmt.Sprintf("c/x/%d", i%7), nil))
	}
	if err := rows.Commit(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	if err := rows.Commit(t.Context(), []journal.Step{journal.DeleteAll("c/w/")}); err != nil {
		t.Fatal(err)
	}
	if got := scanned(t, rows, "c/"); len(got) != 7 {
		t.Errorf("%d rows are left, want the 7 of the other prefix", len(got))
	}
}

func TestDamagedRowIsNamedAndTheOthersAreThere(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "kommit.db"))
	rows := journal.NewRows(db, "windows")
	if err := rows.Commit(t.Context(), []journal.Step{journal.Put("a", []byte("1")), journal.Put("b", []byte("2")), journal.Put("c", []byte("3"))}); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("journal/windows")).Put([]byte("b"), []byte("odd")) }); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := rows.Scan(t.Context(), "", func(key string, _ []byte) error {
		got = append(got, key)
		return nil
	})
	if damaged, ok := errors.AsType[*journal.DamagedError](err); !ok || damaged.Key != "b" {
		t.Errorf("got %v, want a *DamagedError about b", err)
	}
	want(t, got, "a", "c")
}

// disk stands for one that is slow or full: what a commit comes to is said by the
// test.
type disk struct {
	mu      sync.Mutex
	err     error
	takes   time.Duration
	commits [][]journal.Step
}

var _ journal.Rows = (*disk)(nil)

func (d *disk) Commit(_ context.Context, steps []journal.Step) error {
	time.Sleep(d.takes)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.commits = append(d.commits, steps)
	}
	return d.err
}

func (d *disk) Scan(context.Context, string, func(string, []byte) error) error { return nil }

func (d *disk) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// written are the steps of each commit.
func (d *disk) written() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	var sizes []int
	for _, steps := range d.commits {
		sizes = append(sizes, len(steps))
	}
	return sizes
}

// D4: what is appended while one commit is under way makes the next one, whole, and
// nobody is told that it is on disk before it is.
func TestD4ManyAppendsShareOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{takes: time.Second}
		w := journal.NewWriter(d)
		go w.Run(t.Context())
		start := time.Now()
		w.Append(journal.Put("first", nil))
		synctest.Wait() // its commit is under way
		for range 10 {
			w.Append(journal.Put("a", nil), journal.Put("b", nil))
		}
		w.Append()
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("on disk after %v, want the time of two commits", took)
		}
		if got := d.written(); !slices.Equal(got, []int{1, 20}) {
			t.Errorf("commits have %v steps, want 1 and 20", got)
		}
		if err := w.Sync(t.Context()); err != nil || len(d.written()) != 2 {
			t.Errorf("nothing to write: %v, commits %v", err, d.written())
		}
	})
}

// D5: a disk that is full for a while loses nothing and lets nobody pass.
func TestD5FullDiskIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left")
		d := &disk{err: full}
		w := journal.NewWriter(d)
		go w.Run(t.Context())
		w.Append(journal.Put("a", nil))
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Sync(short); !errors.Is(err, full) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("synced to a full disk: %v", err)
		}
		w.Append(journal.Put("b", nil))
		d.set(nil)
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := d.written(); !slices.Equal(got, []int{2}) {
			t.Errorf("commits have %v steps, want both in one", got)
		}
	})
}

// Who appends faster than the disk takes it is made to wait.
func TestRoomBoundsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{err: errors.New("no space left")}
		w := journal.NewWriter(d)
		go w.Run(t.Context())
		big, appended := make([]byte, 1<<20), 0
		for {
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			err := w.Room(short)
			cancel()
			if err != nil {
				break
			}
			w.Append(journal.Put("big", big))
			appended++
		}
		if appended < 60 || appended > 65 {
			t.Errorf("%d MiB were taken, want about 64", appended)
		}
		d.set(nil)
		if err := w.Room(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What was appended before the end is written at the end, if it can be.
func TestTheLastAppendsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		w := journal.NewWriter(d)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.Append(journal.Put("a", nil))
		w.Append(journal.Put("b", nil))
		w.Run(ctx)
		if got := d.written(); !slices.Equal(got, []int{2}) {
			t.Errorf("commits have %v steps, want both", got)
		}
		full := journal.NewWriter(&disk{err: errors.New("no space left")})
		full.Append(journal.Put("a", nil))
		full.Run(ctx) // and it ends when it cannot
	})
}

// lastMoment is a context that ends the moment it is asked, right after something.
type lastMoment struct {
	context.Context
	before func()
}

func (c lastMoment) Err() error {
	c.before()
	return c.Context.Err()
}

// An append before the end does not fall between the writer's look at the queue and
// its look at the end.
func TestNoAppendBeforeTheEndIsLost(t *testing.T) {
	d := &disk{}
	w := journal.NewWriter(d)
	ctx, cancel := context.WithCancel(t.Context())
	w.Run(lastMoment{ctx, sync.OnceFunc(func() {
		w.Append(journal.Put("a", nil))
		cancel()
	})})
	if got := d.written(); !slices.Equal(got, []int{1}) {
		t.Errorf("commits have %v steps, want what was appended", got)
	}
}
