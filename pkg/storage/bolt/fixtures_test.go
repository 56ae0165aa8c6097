// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

func pod(name string) *example.Pod {
	return &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func podKey(name string) string { return "/pods/ns/" + name }

func podStoreConfig() storeConfig {
	return storeConfig{
		groupResource:  pods,
		codec:          testCodec(),
		newFunc:        func() runtime.Object { return &example.Pod{} },
		resourcePrefix: "/pods/",
	}
}

// reopen is a restart: the file is closed and another store opened on it.
func reopen(t *testing.T, path string) (*DB, *store) {
	t.Helper()
	db := openDB(t, Config{Path: path})
	s, err := db.newStore(podStoreConfig())
	if err != nil {
		t.Fatal(err)
	}
	return db, s
}

func mustCreate(t testing.TB, s storage.Interface, name string) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	if err := s.Create(t.Context(), podKey(name), pod(name), out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

// labelled is an update that sets the one label these tests use.
func labelled(value string) storage.UpdateFunc {
	return storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		p := obj.(*example.Pod)
		p.Labels = map[string]string{"l": value}
		return p, nil
	})
}

func mustLabel(t testing.TB, s storage.Interface, name, value string) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	if err := s.GuaranteedUpdate(t.Context(), podKey(name), out, false, nil, labelled(value), nil); err != nil {
		t.Fatal(err)
	}
	return out
}

func mustDelete(t testing.TB, s storage.Interface, name string) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	if err := s.Delete(t.Context(), podKey(name), out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return out
}

func mustList(t testing.TB, s storage.Interface, opts storage.ListOptions) *example.PodList {
	t.Helper()
	out := &example.PodList{}
	opts.Recursive = true
	if opts.Predicate.Label == nil {
		limit, token := opts.Predicate.Limit, opts.Predicate.Continue
		opts.Predicate = storage.Everything
		opts.Predicate.Limit, opts.Predicate.Continue = limit, token
	}
	if err := s.GetList(t.Context(), "/pods/", opts, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func exactly(rv string) storage.ListOptions {
	return storage.ListOptions{ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
}

func startWatch(t testing.TB, s storage.Interface, opts storage.ListOptions) watch.Interface {
	t.Helper()
	opts.Recursive = true
	if opts.Predicate.Label == nil {
		bookmarks := opts.Predicate.AllowWatchBookmarks
		opts.Predicate = storage.Everything
		opts.Predicate.AllowWatchBookmarks = bookmarks
	}
	w, err := s.Watch(t.Context(), "/pods", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// expect reads the next event and compares type, name and resourceVersion.
func expect(t testing.TB, w watch.Interface, want watch.EventType, obj *example.Pod) {
	t.Helper()
	e, ok := <-w.ResultChan()
	if !ok {
		t.Fatalf("the watch ended, want %s of %s", want, obj.Name)
	}
	got := sentPod(e)
	if e.Type != want || got == nil || got.Name != obj.Name || got.ResourceVersion != obj.ResourceVersion {
		t.Fatalf("got %s %+v, want %s of %s at %s", e.Type, e.Object, want, obj.Name, obj.ResourceVersion)
	}
}

// sentPod is the pod of an event, nil if it has none.
func sentPod(e watch.Event) *example.Pod {
	obj := e.Object
	if shared, ok := obj.(runtime.CacheableObject); ok {
		obj = shared.GetObject()
	}
	p, _ := obj.(*example.Pod)
	return p
}

func revision(t testing.TB, obj metav1.Object) uint64 {
	t.Helper()
	rev, err := storage.APIObjectVersioner{}.ParseResourceVersion(obj.GetResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	return rev
}
