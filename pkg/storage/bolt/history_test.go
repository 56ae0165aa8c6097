// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

func TestContinueTokenIsPinnedToItsRevision(t *testing.T) {
	_, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	for i := range 5 {
		mustCreate(t, s, fmt.Sprint(i))
	}
	page := mustList(t, s, storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: 2}})
	mustDelete(t, s, "2")
	mustCreate(t, s, "25")
	mustLabel(t, s, "3", "new")
	mustDelete(t, s, "0")
	if page.RemainingItemCount == nil || *page.RemainingItemCount != 3 {
		t.Errorf("remainingItemCount %v, want 3", page.RemainingItemCount)
	}
	var names []string
	for rv := page.ResourceVersion; ; {
		for _, p := range page.Items {
			names = append(names, p.Name)
			if len(p.Labels) > 0 {
				t.Errorf("%s shows a later state", p.Name)
			}
		}
		if page.ResourceVersion != rv {
			t.Errorf("page at %s, want %s", page.ResourceVersion, rv)
		}
		if page.Continue == "" {
			break
		}
		page = mustList(t, s, storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: 2, Continue: page.Continue}})
	}
	if got, want := fmt.Sprint(names), "[0 1 2 3 4]"; got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
}

func TestCompactionOfTheFuture(t *testing.T) {
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	a := mustCreate(t, s, "a")
	var future *futureError
	if err := db.Compact(t.Context(), pods, revision(t, a)+1); !errors.As(err, &future) {
		t.Errorf("Compact ahead of the current revision: %v", err)
	}
	if err := errors.Join(db.Compact(t.Context(), pods, revision(t, a)), db.Compact(t.Context(), pods, 1)); err != nil {
		t.Errorf("Compact of what is compacted already: %v", err)
	}
	if list := mustList(t, s, exactly(a.ResourceVersion)); len(list.Items) != 1 {
		t.Errorf("the compacted revision itself is gone: %+v", list)
	}
	if err := s.GetList(t.Context(), "/pods/", storage.ListOptions{
		Recursive: true, Predicate: storage.Everything, ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}, &example.PodList{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("exact list before the compaction: %v, want Expired", err)
	}
}

// A compaction of many records takes several batches, and ends where it should.
func TestCompactionInSteps(t *testing.T) {
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	const writes = 2*compactionStep + 10
	if err := db.submit(0, func(b *batch) error {
		p, err := b.resource(s.resource)
		for i := 0; err == nil && i < writes; i++ {
			_, err = p.put(podKey(fmt.Sprint(i)), []byte("x"), 0, 0)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(t.Context(), pods, writes); err != nil {
		t.Fatal(err)
	}
	if got := s.CompactRevision(); got != writes {
		t.Errorf("CompactRevision() = %d, want %d", got, writes)
	}
	if err := s.resource.read(0, func(v *view) error {
		if left := v.log.Inspect().KeyN; left != 1 {
			t.Errorf("%d records left, want 1", left)
		}
		if left := v.history.Inspect().KeyN; left != 1 {
			t.Errorf("%d history entries left, want 1", left)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(t.Context(), Config{Path: path, History: History{MaxAge: 10 * time.Minute, MaxEvents: 5, Interval: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeChecked(t, db)
		s, err := db.newStore(podStoreConfig())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			mustCreate(t, s, fmt.Sprint(i))
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if got := s.CompactRevision(); got != 4 {
			t.Errorf("by count: CompactRevision() = %d of 9, want 4", got)
		}
		time.Sleep(5 * time.Minute)
		young := mustCreate(t, s, "young")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := s.CompactRevision(); got != int64(revision(t, young))-1 {
			t.Errorf("by age: CompactRevision() = %d, want all before %s", got, young.ResourceVersion)
		}
		if statistics, err := db.Statistics(); err != nil || time.Since(statistics.LastCompaction) > time.Minute {
			t.Errorf("last compaction %v, %v", statistics.LastCompaction, err)
		}
	})
}

func TestExpiry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		s, err := db.newStore(podStoreConfig())
		if err != nil {
			t.Fatal(err)
		}
		create := func(name string, ttl uint64) *example.Pod {
			out := &example.Pod{}
			if err := s.Create(t.Context(), podKey(name), pod(name), out, ttl); err != nil {
				t.Fatal(err)
			}
			return out
		}
		create("long", 3600)
		create("short", 10)
		kept := create("kept", 10)
		w := startWatch(t, s, storage.ListOptions{ResourceVersion: kept.ResourceVersion})
		kept = mustLabel(t, s, "kept", "for ever") // an update without a time to live takes it away
		expect(t, w, watch.Modified, kept)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		select {
		case e := <-w.ResultChan():
			t.Errorf("too early: %v", e)
		default:
		}
		time.Sleep(time.Second)
		short := pod("short")
		short.ResourceVersion = fmt.Sprint(revision(t, kept) + 1)
		expect(t, w, watch.Deleted, short)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}

		// What falls due while nobody serves goes at the next start.
		time.Sleep(time.Hour)
		db, err = Open(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer closeChecked(t, db)
		if s, err = db.newStore(podStoreConfig()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if list := mustList(t, s, storage.ListOptions{}); len(list.Items) != 1 || list.Items[0].Name != "kept" {
			t.Errorf("left: %+v", list.Items)
		}
	})
}

func TestBookmarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(t.Context(), Config{Path: path, BookmarkInterval: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer closeChecked(t, db)
		s, err := db.newStore(podStoreConfig())
		if err != nil {
			t.Fatal(err)
		}
		asked := startWatch(t, s, storage.ListOptions{ResourceVersion: "1", Predicate: storage.SelectionPredicate{AllowWatchBookmarks: true}})
		silent := startWatch(t, s, storage.ListOptions{ResourceVersion: "1"})
		filtered := startWatch(t, s, storage.ListOptions{ResourceVersion: "1", Predicate: storage.SelectionPredicate{
			Label: labels.SelectorFromSet(labels.Set{"no": "such"}), Field: fields.Everything(),
			GetAttrs: storage.DefaultNamespaceScopedAttr, AllowWatchBookmarks: true,
		}})
		internal := startWatch(t, s, storage.ListOptions{ResourceVersion: "1", ProgressNotify: true})
		a := mustCreate(t, s, "a")
		for _, w := range []watch.Interface{asked, silent, internal} {
			expect(t, w, watch.Added, a)
		}
		at := &example.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: a.ResourceVersion}}
		if err := s.RequestWatchProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, internal, watch.Bookmark, at)
		time.Sleep(time.Minute)
		for _, w := range []watch.Interface{asked, filtered, internal} {
			expect(t, w, watch.Bookmark, at)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		pred := storage.Everything
		pred.AllowWatchBookmarks = true
		ending, err := s.Watch(ctx, "/pods", storage.ListOptions{Recursive: true, ResourceVersion: a.ResourceVersion, Predicate: pred})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30*time.Second - farewell)
		expect(t, ending, watch.Bookmark, at) // before the request ends
		synctest.Wait()
		select {
		case e := <-silent.ResultChan():
			t.Errorf("a bookmark nobody asked for: %v", e)
		default:
		}
	})
}

// A watcher that falls out of the memory of recent events reads the file, and
// misses nothing.
func TestWatcherFarBehind(t *testing.T) {
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	w := startWatch(t, s, storage.ListOptions{ResourceVersion: "1"})
	value := func() []byte {
		mustCreate(t, s, "template")
		o, _, err := s.load(podKey("template"))
		if err != nil {
			t.Fatal(err)
		}
		return o.value
	}()
	const writes = 5 * feedEvents
	for range 5 {
		if err := db.submit(0, func(b *batch) error {
			p, err := b.resource(s.resource)
			for i := 0; err == nil && i < feedEvents; i++ {
				o, _ := p.current(podKey("hot"))
				_, err = p.put(podKey("hot"), value, o.rev, 0)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range writes + 1 {
		e := <-w.ResultChan()
		p := sentPod(e)
		if p == nil || revision(t, p) != uint64(i+2) {
			t.Fatalf("event %d: %s %+v, want revision %d", i, e.Type, e.Object, i+2)
		}
		if want := (map[bool]watch.EventType{true: watch.Added, false: watch.Modified})[i < 2]; e.Type != want {
			t.Fatalf("event %d is %s, want %s", i, e.Type, want)
		}
	}
}
