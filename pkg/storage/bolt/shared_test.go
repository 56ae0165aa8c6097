// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// sentTo returns the object that each of some watchers gets of one event.
func sentTo(t *testing.T, watchers int) []runtime.Object {
	t.Helper()
	_, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	var watches []watch.Interface
	for range watchers {
		watches = append(watches, startWatch(t, s, storage.ListOptions{ResourceVersion: "1"}))
	}
	p := pod("a")
	p.Labels, p.Finalizers = map[string]string{"of": "all"}, []string{"example.com/one"}
	if err := s.Create(t.Context(), podKey("a"), p, nil, 0); err != nil {
		t.Fatal(err)
	}
	var sent []runtime.Object
	for _, w := range watches {
		sent = append(sent, (<-w.ResultChan()).Object)
	}
	return sent
}

// Watchers share what was decoded once; none may see what another does to it.
func TestWatchersDoNotShareChanges(t *testing.T) {
	spoil := map[string]func(apiObject){
		"name":       func(o apiObject) { o.SetName("spoiled") },
		"revision":   func(o apiObject) { o.SetResourceVersion("99") },
		"labels":     func(o apiObject) { o.SetLabels(nil) },
		"a label":    func(o apiObject) { o.GetLabels()["of"] = "one" },
		"finalizers": func(o apiObject) { o.SetFinalizers([]string{"spoiled"}) },
		"finalizer":  func(o apiObject) { o.GetFinalizers()[0] = "spoiled" },
		"kind":       func(o apiObject) { o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Kind: "Spoiled"}) },
		"the copy that is encoded": func(o apiObject) {
			if shared, ok := o.(runtime.CacheableObject); ok {
				shared.GetObject().(*example.Pod).Name = "spoiled"
			}
		},
	}
	for _, watchers := range []int{1, crowd - 1, crowd, 10} {
		for name, f := range spoil {
			t.Run(fmt.Sprintf("%d/%s", watchers, name), func(t *testing.T) {
				sent := sentTo(t, watchers)
				for i, obj := range sent {
					_, shared := obj.(runtime.CacheableObject)
					if shared != (watchers >= crowd) {
						t.Errorf("of %d watchers, one got a %T", watchers, obj)
					}
					o := obj.(apiObject)
					if o.GetName() != "a" || o.GetResourceVersion() != "2" || o.GetLabels()["of"] != "all" || o.GetFinalizers()[0] != "example.com/one" || o.GetObjectKind().GroupVersionKind().Kind == "Spoiled" {
						t.Fatalf("watcher %d sees what another has done: %+v", i, sentPod(watch.Event{Object: obj}))
					}
					f(o)
				}
			})
		}
	}
}

// countingEncode writes the name of a pod, and counts.
type countingEncode struct{ calls int }

func (e *countingEncode) encode(obj runtime.Object, w io.Writer) error {
	e.calls++
	_, err := io.WriteString(w, obj.(metav1.Object).GetName())
	return err
}

func TestSharedObjectsAreEncodedOnce(t *testing.T) {
	const watchers = 5
	sent := sentTo(t, watchers)
	for _, id := range []runtime.Identifier{"json", "yaml"} {
		var e countingEncode
		for _, obj := range sent {
			var b bytes.Buffer
			if err := obj.(runtime.CacheableObject).CacheEncode(id, e.encode, &b); err != nil || b.String() != "a" {
				t.Errorf("got %q, %v, want a", &b, err)
			}
		}
		if e.calls != 1 {
			t.Errorf("%s was encoded %d times", id, e.calls)
		}
	}
	// One that was changed is encoded as it is now, and the others as before.
	sent[0].(metav1.Object).SetName("mine")
	var e countingEncode
	for i, want := range []string{"mine", "a"} {
		var b bytes.Buffer
		if err := sent[i].(runtime.CacheableObject).CacheEncode("json", e.encode, &b); err != nil || b.String() != want {
			t.Errorf("object %d: got %q, %v, want %s", i, &b, err, want)
		}
	}
	broken := errors.New("broken")
	if err := sent[1].(runtime.CacheableObject).CacheEncode("cbor", func(runtime.Object, io.Writer) error { return broken }, io.Discard); !errors.Is(err, broken) {
		t.Errorf("got %v, want the encoder's error", err)
	}
}

// An idle watcher has no goroutine, and stopping it still ends it.
func TestIdleWatcherEnds(t *testing.T) {
	for name, end := range map[string]func(w watch.Interface, cancel func(), db *DB){
		"stopped":         func(w watch.Interface, _ func(), _ *DB) { w.Stop(); w.Stop() },
		"request ended":   func(_ watch.Interface, cancel func(), _ *DB) { cancel() },
		"database closed": func(_ watch.Interface, _ func(), db *DB) { _ = db.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w, err := s.Watch(ctx, "/pods/", storage.ListOptions{Recursive: true, ResourceVersion: "1", Predicate: storage.Everything})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, w, watch.Added, mustCreate(t, s, "a"))
			end(w, cancel, db)
			if e, ok := <-w.ResultChan(); ok {
				t.Errorf("got %v, want the end", e)
			}
			if n := s.resource.feed.crowd.Load(); n != 0 {
				t.Errorf("%d watchers are left", n)
			}
		})
	}
}
