// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// inBubble runs test on a new file in a bubble: time stands still there, and
// synctest.Wait returns when everybody waits for somebody.
func inBubble(t *testing.T, test func(*testing.T, *DB, *store)) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer closeChecked(t, db)
		s, err := db.newStore(podStoreConfig())
		if err != nil {
			t.Fatal(err)
		}
		test(t, db, s)
	})
}

// holdCommitter keeps the committer busy, as a slow disk does, until release is
// called. It writes nothing.
func holdCommitter(t *testing.T, db *DB) (release func()) {
	held := make(chan struct{})
	go func() {
		if err := db.submit(0, func(*batch) error { <-held; return nil }); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return func() { close(held) }
}

func commits(t *testing.T, db *DB) (commits, writes uint64) {
	t.Helper()
	s, err := db.Statistics()
	if err != nil {
		t.Fatal(err)
	}
	return s.Commits, s.Writes
}

// D4: all writers that wait share the next fsync, and none of them is answered,
// nor is anything of theirs visible, before it.
func TestGroupCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, db *DB, s *store) {
		commitsBefore, writesBefore := commits(t, db)
		release := holdCommitter(t, db)
		const writers = 200
		var answered atomic.Int32
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				defer answered.Add(1)
				name := fmt.Sprint(w)
				if err := s.Create(t.Context(), podKey(name), pod(name), nil, 0); err != nil {
					t.Error(err)
				}
			})
		}
		synced := false
		wg.Go(func() {
			if err := db.Update(func(tx *bbolt.Tx) error {
				tx.OnCommit(func() { // all of it is synced, and nothing more has happened
					synced = true
					if n, rev := answered.Load(), s.resource.feed.revision(); n != 0 || rev != 1 {
						t.Errorf("when the disk has synced, %d writers have been answered and revision %d is visible", n, rev)
					}
				})
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if n := answered.Load(); n != 0 {
			t.Errorf("%d writers were answered without a commit", n)
		}
		release()
		wg.Wait()
		commitsAfter, writesAfter := commits(t, db)
		if commitsAfter-commitsBefore != 1 || writesAfter-writesBefore != writers+1 {
			t.Errorf("%d writes took %d commits, want %d in 1", writesAfter-writesBefore, commitsAfter-commitsBefore, writers+1)
		}
		if !synced {
			t.Error("the commit was not seen")
		}
		statistics, err := db.Statistics()
		if got := statistics.Resources["pods"]; err != nil || got.Objects != writers || got.Revision != 1+writers {
			t.Errorf("statistics: %+v, %v", got, err)
		}
	})
}

// A lone writer waits for no timer: the clock of the bubble would have moved.
func TestLoneWriterWaitsForNoTimer(t *testing.T) {
	inBubble(t, func(t *testing.T, db *DB, s *store) {
		start := time.Now()
		before, _ := commits(t, db)
		for i := range 5 {
			mustCreate(t, s, fmt.Sprint(i))
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("five writes waited %s for timers", waited)
		}
		if after, _ := commits(t, db); after-before != 5 {
			t.Errorf("five writes took %d commits, want 5", after-before)
		}
	})
}

// Writers are served in the order they came, so a stream of others starves none:
// whoever comes after n others is in the first batch that has room for all n.
func TestWriterIsNotStarved(t *testing.T) {
	inBubble(t, func(t *testing.T, db *DB, s *store) {
		release := holdCommitter(t, db)
		before, _ := commits(t, db)
		const others = 3 * maxBatchOperations
		var done atomic.Bool
		var wg sync.WaitGroup
		for range others {
			wg.Go(func() {
				for !done.Load() {
					if err := db.Update(func(*bbolt.Tx) error { return nil }); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		synctest.Wait() // all others are before it
		wg.Go(func() {
			defer done.Store(true)
			mustCreate(t, s, "late")
			if after, _ := commits(t, db); after-before > others/maxBatchOperations+2 {
				t.Errorf("it took %d commits to get after %d others", after-before, others)
			}
		})
		synctest.Wait()
		release()
		wg.Wait()
	})
}

// A batch is bounded by its size, too.
func TestBatchIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, db *DB, _ *store) {
		release := holdCommitter(t, db)
		before, _ := commits(t, db)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				if err := db.submit(maxBatchBytes/2, func(b *batch) error { b.dirty = true; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		release()
		wg.Wait()
		if after, _ := commits(t, db); after-before != 3 {
			t.Errorf("six writes of half a batch took %d commits, want 3", after-before)
		}
	})
}

// What the disk refused is either not made, and said so with its reason, or in
// the file and not known to be on the disk: then the answer is that it is unclear.
func TestFailedCommit(t *testing.T) {
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	mustCreate(t, s, "a")
	last, err := db.lastTransaction()
	if err != nil {
		t.Fatal(err)
	}
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		var full *DiskFullError
		if err := db.commitFailure(last+1, errno); !errors.As(err, &full) || !errors.Is(err, errno) || full.Status().Code != 507 {
			t.Errorf("%v: %v, want a DiskFullError", errno, err)
		}
		var unclear *WriteError
		if err := db.commitFailure(last, errno); !errors.As(err, &unclear) || !errors.Is(err, errno) || unclear.Status().Code != 503 {
			t.Errorf("%v of a commit that is in the file: %v, want a WriteError", errno, err)
		}
	}
	var unclear *WriteError
	if err := db.commitFailure(last+1, syscall.EIO); !errors.As(err, &unclear) {
		t.Errorf("EIO: %v, want a WriteError", err)
	}
}

// An operation that fails undoes its own part and nobody else's.
func TestUpdateFailureInABatch(t *testing.T) {
	db, _ := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	bucket, boom := []byte("own"), errors.New("boom")
	put := func(key string, err error) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			b, e := tx.CreateBucketIfNotExists(bucket)
			if e != nil {
				return e
			}
			return errors.Join(b.Put([]byte(key), []byte(key)), err)
		}
	}
	var ops []*operation
	for _, o := range []struct {
		key string
		err error
	}{{"a", nil}, {"b", boom}, {"c", nil}, {"d", boom}} {
		f := put(o.key, o.err)
		ops = append(ops, &operation{done: make(chan struct{}), apply: func(b *batch) error { b.dirty = true; return f(b.tx) }})
	}
	db.commit(ops)
	for i, op := range ops {
		<-op.done
		if failed := i%2 == 1; errors.Is(op.err, boom) != failed || (op.err != nil) != failed {
			t.Errorf("operation %d: %v", i, op.err)
		}
	}
	if err := db.View(func(tx *bbolt.Tx) error {
		var got []string
		err := tx.Bucket(bucket).ForEach(func(k, _ []byte) error { got = append(got, string(k)); return nil })
		if strings.Join(got, "") != "ac" {
			t.Errorf("stored %v, want a and c", got)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestWriteOfAnEndedRequestIsNotMade(t *testing.T) {
	_, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Create(ctx, podKey("a"), pod("a"), nil, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Create with an ended context: %v", err)
	}
	if err := s.Get(t.Context(), podKey("a"), storage.GetOptions{}, &example.Pod{}); !storage.IsNotFound(err) {
		t.Errorf("Get: %v, want not found", err)
	}
}

// bbolt shows readers a commit before it is synced. Nobody may see it before:
// after a power cut its revision would be given out again (D5).
func TestUnpublishedCommitIsInvisible(t *testing.T) {
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	a := mustCreate(t, s, "a")
	mustCreate(t, s, "b")
	at := mustList(t, s, storage.ListOptions{})

	tx, err := db.bolt.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	b := &batch{db: db, tx: tx, now: time.Now(), touched: map[*resource]*pending{}}
	p, err := b.resource(s.resource)
	if err != nil {
		t.Fatal(err)
	}
	stored := func(name string) object {
		o, _, err := s.load(podKey(name))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if _, err := p.put(podKey("a"), []byte("garbage"), revision(t, a), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.put(podKey("c"), stored("a").value, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.delete(podKey("b"), stored("b").rev); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.flush(), tx.Commit()); err != nil {
		t.Fatal(err)
	}

	now := mustList(t, s, storage.ListOptions{})
	if now.ResourceVersion != at.ResourceVersion || len(now.Items) != 2 || now.Items[0].ResourceVersion != a.ResourceVersion {
		t.Errorf("list shows %+v at %s", now.Items, now.ResourceVersion)
	}
	if o := stored("a"); o.rev != revision(t, a) {
		t.Errorf("Get shows revision %d", o.rev)
	}
	if o := stored("c"); o.rev != 0 {
		t.Errorf("Get shows an object that is not there yet, at %d", o.rev)
	}

	// The next commit reveals it, and watches get all of it, in order.
	w := startWatch(t, s, storage.ListOptions{ResourceVersion: at.ResourceVersion})
	p.publish()
	if e := <-w.ResultChan(); e.Type != watch.Error {
		t.Errorf("the garbage came as %s %v", e.Type, e.Object)
	}
	d := mustCreate(t, s, "d")
	if want := revision(t, a) + 5; revision(t, d) != want {
		t.Errorf("d at %s, want %d: four writes have been made since a", d.ResourceVersion, want)
	}
}
