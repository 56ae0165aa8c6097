// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// countingCodec counts what is decoded.
type countingCodec struct {
	runtime.Codec
	decodes atomic.Int64
}

func (c *countingCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	c.decodes.Add(1)
	return c.Codec.Decode(data, defaults, into)
}

func listPods(t *testing.T, s *store, rev string) []example.Pod {
	t.Helper()
	opts := storage.ListOptions{Recursive: true, ResourceVersion: rev, Predicate: storage.Everything}
	if rev != "" {
		opts.ResourceVersionMatch = "Exact"
	}
	var list example.PodList
	if err := s.GetList(t.Context(), "/pods/", opts, &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// A list decodes what has changed since the last one, and nothing else; what is
// done to its items does not come back.
func TestListsDecodeOnce(t *testing.T) {
	const n = 10
	codec := &countingCodec{Codec: testCodec()}
	s := newTestStore(t, func(_ *Config, c *storeConfig) { c.codec = codec })
	for i := range n {
		mustCreate(t, s.store, fmt.Sprint(i))
	}
	old := s.resource.feed.revision()
	list := func(rev string, want int64) []example.Pod {
		t.Helper()
		before := codec.decodes.Load()
		pods := listPods(t, s.store, rev)
		if got := codec.decodes.Load() - before; got != want {
			t.Errorf("list %q decoded %d objects, want %d", rev, got, want)
		}
		return pods
	}
	list("", n)
	for _, p := range list("", 0) {
		if p.Name == "spoiled" || p.Labels["spoiled"] != "" {
			t.Errorf("got %+v", p)
		}
	}
	for i := range list("", 0) {
		pods := list("", 0)
		pods[i].Name = "spoiled"
		pods[i].Labels = map[string]string{"spoiled": "yes"}
	}
	mustLabel(t, s.store, "3", "new")
	for i, p := range list("", 1) {
		if want := fmt.Sprint(i); p.Name != want || (p.Labels != nil) != (i == 3) {
			t.Errorf("item %d is %+v", i, p)
		}
	}
	if got := list(fmt.Sprint(old), 1)[3]; got.Labels != nil || revision(t, &got) > old {
		t.Errorf("at revision %d: %+v", old, got)
	}
	list("", 0) // an old revision does not take the place of the newest

	// The first events of a watch are a list, too.
	before := codec.decodes.Load()
	w := startWatch(t, s.store, storage.ListOptions{})
	for range n {
		if e := <-w.ResultChan(); e.Type != watch.Added {
			t.Fatalf("got %v", e)
		} else {
			sentPod(e).Name = "spoiled"
		}
	}
	if got := codec.decodes.Load() - before; got != 0 {
		t.Errorf("a watch decoded %d objects again", got)
	}
	for i, p := range list("", 0) {
		if p.Name != fmt.Sprint(i) {
			t.Errorf("a watcher's change is in the list: %+v", p)
		}
	}
}

// What is deleted is not kept, and two codecs do not share.
func TestDecodedObjectsGo(t *testing.T) {
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	mustCreate(t, s, "a")
	listPods(t, s, "")
	o, _, err := s.load(podKey("a"))
	if err != nil {
		t.Fatal(err)
	}
	cached := db.cache.get([]byte(podKey("a")), o.rev)
	if cached == nil {
		t.Fatal("a list has left nothing in the cache")
	}
	other, err := db.newStore(podStoreConfig())
	if err != nil {
		t.Fatal(err)
	}
	if !cached.answers(s, o.value, s.objectType) || cached.answers(other, o.value, s.objectType) || cached.answers(s, []byte("{}"), s.objectType) {
		t.Error("the cache answers for another store or other bytes")
	}
	if err := s.Delete(t.Context(), podKey("a"), &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if db.cache.get([]byte(podKey("a")), o.rev) != nil || db.cache.size != 0 {
		t.Errorf("a deleted object is kept, %d bytes", db.cache.size)
	}
}

func TestDecodedObjectsAreBounded(t *testing.T) {
	c := newCache()
	const size = cacheBytes / 64
	for i := range 100 {
		c.put(&cachedObject{rev: 1, key: fmt.Sprint(i), data: make([]byte, size/decodedFactor)})
		if c.size > cacheBytes {
			t.Fatalf("%d bytes of %d after %d objects", c.size, cacheBytes, i+1)
		}
	}
	if len(c.entries) != 64 || c.size != 64*size {
		t.Errorf("%d objects, %d bytes, want 64 and %d", len(c.entries), c.size, cacheBytes)
	}
	c.put(&cachedObject{rev: 1, key: "huge", data: make([]byte, cacheBytes)})
	if c.get([]byte("huge"), 1) != nil {
		t.Error("one object took all the room")
	}
}
