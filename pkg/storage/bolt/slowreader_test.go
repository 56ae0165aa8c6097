// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// pausedCodec stops in each Decode until it is told to go on.
type pausedCodec struct {
	runtime.Codec
	goOn chan struct{}
}

func (c *pausedCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	<-c.goOn
	return c.Codec.Decode(data, defaults, into)
}

// slowReaders is a file with large objects, a store on it, and one whose reads
// take as long as the test wants.
type slowReaders struct {
	db             *DB
	s, slow, other *store
	goOn           chan struct{}
	written        int
}

const largeObjects = 20

// withSlowReaders runs test in a bubble, where synctest.Wait tells that whoever
// waits for a slow reader does so.
func withSlowReaders(t *testing.T, test func(*testing.T, *slowReaders)) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer closeChecked(t, db)
		r := &slowReaders{db: db, goOn: make(chan struct{})}
		if r.s, err = db.newStore(podStoreConfig()); err != nil {
			t.Fatal(err)
		}
		config := podStoreConfig()
		config.codec = &pausedCodec{Codec: config.codec, goOn: r.goOn}
		if r.slow, err = db.newStore(config); err != nil {
			t.Fatal(err)
		}
		config = podStoreConfig()
		config.groupResource = otherPods
		if r.other, err = db.newStore(config); err != nil {
			t.Fatal(err)
		}
		r.write(t, largeObjects)
		test(t, r)
	})
}

// write makes n objects of 512 KiB.
func (r *slowReaders) write(t *testing.T, n int) {
	t.Helper()
	for range n {
		p := pod(fmt.Sprintf("%03d", r.written))
		p.Annotations = map[string]string{"a": strings.Repeat("x", 1<<19)}
		if err := r.s.Create(t.Context(), podKey(p.Name), p, nil, 0); err != nil {
			t.Fatal(err)
		}
		r.written++
	}
}

// growFile writes n MiB of another resource.
func (r *slowReaders) growFile(t *testing.T, n int) {
	t.Helper()
	sizes := map[string]int{}
	for range n {
		r.written++
		sizes[fmt.Sprint(r.written)] = 1 << 20
	}
	putAll(t, r.db, r.other, sizes)
}

// noTransaction fails the test if a read transaction is open while all that could
// close it wait for a reader. bbolt counts them.
func (r *slowReaders) noTransaction(t *testing.T, when string) {
	t.Helper()
	synctest.Wait()
	if open := r.db.bolt.Stats().OpenTxN; open != 0 {
		t.Errorf("%d read transactions are open while %s", open, when)
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// F67: a list of tens of MiB whose reader is slow, while the file grows past
// several remaps. The writer waits for nobody; the list is of one revision.
func TestSlowList(t *testing.T) {
	withSlowReaders(t, func(t *testing.T, r *slowReaders) {
		before := fileSize(t, r.db.path)
		list, done := &example.PodList{}, make(chan error)
		go func() {
			done <- r.slow.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list)
		}()
		for i := range largeObjects {
			r.noTransaction(t, fmt.Sprintf("object %d is being decoded", i))
			if i%5 == 0 {
				r.growFile(t, 10)
				mustLabel(t, r.s, fmt.Sprintf("%03d", largeObjects-1-i), "later")
				mustDelete(t, r.s, fmt.Sprintf("%03d", largeObjects-2-i))
			}
			r.goOn <- struct{}{}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if list.ResourceVersion != fmt.Sprint(1+largeObjects) || len(list.Items) != largeObjects {
			t.Errorf("%d items at %s, want those of %d", len(list.Items), list.ResourceVersion, 1+largeObjects)
		}
		for i, p := range list.Items {
			if p.Name != fmt.Sprintf("%03d", i) || p.ResourceVersion != fmt.Sprint(2+i) || len(p.Labels) > 0 {
				t.Errorf("item %d is %s at %s with %v", i, p.Name, p.ResourceVersion, p.Labels)
			}
		}
		if after := fileSize(t, r.db.path); after < 3*before {
			t.Errorf("the file grew from %d to %d bytes only, it has to be mapped again several times", before, after)
		}
	})
}

// F67: watchers that take nothing, of the initial events and of those after, hold
// no transaction and keep nobody waiting. When they read at last, all is there.
func TestWatcherThatNeverReads(t *testing.T) {
	withSlowReaders(t, func(t *testing.T, r *slowReaders) {
		before := fileSize(t, r.db.path)
		initial := startWatch(t, r.s, storage.ListOptions{SendInitialEvents: new(true), Predicate: storage.SelectionPredicate{AllowWatchBookmarks: true}})
		history := startWatch(t, r.s, storage.ListOptions{ResourceVersion: "1"})
		undecoded := startWatch(t, r.slow, storage.ListOptions{ResourceVersion: "1"})
		defer close(r.goOn)
		defer undecoded.Stop()
		for i := range 4 {
			r.noTransaction(t, "no watcher reads")
			r.growFile(t, 10)
			mustLabel(t, r.s, fmt.Sprintf("%03d", i), "new")
		}
		r.noTransaction(t, "no watcher reads")
		if after := fileSize(t, r.db.path); after < 3*before {
			t.Errorf("the file grew from %d to %d bytes only, it has to be mapped again several times", before, after)
		}
		for name, w := range map[string]watch.Interface{"initial": initial, "history": history} {
			for i := 0; i < largeObjects+4; {
				e := <-w.ResultChan()
				if name == "initial" && i == largeObjects && e.Type == watch.Bookmark {
					continue
				}
				version, err := r.s.versioner.ObjectResourceVersion(e.Object)
				want := map[bool]watch.EventType{true: watch.Added, false: watch.Modified}[i < largeObjects]
				if err != nil || e.Type != want || version != uint64(2+i) {
					t.Fatalf("%s watch, event %d: %s %T at %d, want one at %d", name, i, e.Type, e.Object, version, 2+i)
				}
				i++
			}
		}
	})
}

// A read, and an update that takes its time to decide, hold nothing either.
func TestSlowGetAndUpdate(t *testing.T) {
	withSlowReaders(t, func(t *testing.T, r *slowReaders) {
		done := make(chan error)
		go func() {
			done <- r.slow.Get(t.Context(), podKey("000"), storage.GetOptions{}, &example.Pod{})
		}()
		r.noTransaction(t, "an object is being decoded")
		r.growFile(t, 10)
		r.goOn <- struct{}{}
		if err := <-done; err != nil {
			t.Error(err)
		}
		go func() {
			done <- r.s.GuaranteedUpdate(t.Context(), podKey("001"), &example.Pod{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
				<-r.goOn
				obj.(*example.Pod).Labels = map[string]string{"l": "slow"}
				return obj, nil
			}), nil)
		}()
		r.noTransaction(t, "an update is being decided")
		r.growFile(t, 10)
		mustLabel(t, r.s, "000", "quick")
		r.goOn <- struct{}{}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// F23: a watcher that sleeps while its history is compacted is told so, by one
// last event, and nobody else is.
func TestSleepingWatcherIsToldOfACompaction(t *testing.T) {
	inBubble(t, func(t *testing.T, db *DB, s *store) {
		sleeping := startWatch(t, s, storage.ListOptions{ResourceVersion: "1"})
		mustCreate(t, s, "hot")
		value, _, err := s.load(podKey("hot"))
		if err != nil {
			t.Fatal(err)
		}
		rev := value.rev
		for range 4 { // more than is remembered
			if err := db.submit(0, func(b *batch) error {
				p, err := b.resource(s.resource)
				for i := 0; err == nil && i < feedEvents; i++ {
					rev, err = p.put(podKey("hot"), value.value, rev, 0)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		hot := mustLabel(t, s, "hot", "old")
		if err := db.Compact(t.Context(), pods, revision(t, hot)); err != nil {
			t.Fatal(err)
		}
		awake := startWatch(t, s, storage.ListOptions{ResourceVersion: hot.ResourceVersion})
		var last watch.Event
		for e := range sleeping.ResultChan() {
			last = e
			if version, err := s.versioner.ObjectResourceVersion(e.Object); err == nil && version == revision(t, hot) {
				t.Fatal("the sleeping watch has got everything")
			}
		}
		if status, ok := last.Object.(*metav1.Status); last.Type != watch.Error || !ok || status.Code != 410 || status.Reason != metav1.StatusReasonExpired {
			t.Errorf("the sleeping watch ends with %s %v, want 410 Expired", last.Type, last.Object)
		}
		expect(t, awake, watch.Modified, mustLabel(t, s, "hot", "new"))
	})
}
