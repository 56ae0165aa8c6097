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
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// D4: many writers share one fsync.
func TestGroupCommit(t *testing.T) {
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	const writers, each = 64, 10
	before, err := db.Statistics()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("%d-%d", w, i)
				if err := s.Create(t.Context(), podKey(name), pod(name), nil, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	after, err := db.Statistics()
	if err != nil {
		t.Fatal(err)
	}
	if writes := after.Writes - before.Writes; writes != writers*each {
		t.Errorf("%d writes counted, want %d", writes, writers*each)
	}
	if commits := after.Commits - before.Commits; commits > writers*each/4 {
		t.Errorf("%d writes took %d commits", writers*each, commits)
	}
	if got := after.Resources["pods"]; got.Objects != writers*each || got.Revision != 1+writers*each {
		t.Errorf("statistics: %+v", got)
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
