// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"fmt"
	"maps"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"pgregory.net/rapid"
)

// modelStore is what a store should be: every state it ever had, and every event.
type modelStore struct {
	states    []map[string]string // index: revision; name → label@revision
	events    []string            // index: revision
	compacted int
}

func (m *modelStore) current() map[string]string { return m.states[len(m.states)-1] }
func (m *modelStore) revision() int              { return len(m.states) - 1 }

func (m *modelStore) write(kind watch.EventType, name, label string) {
	next := maps.Clone(m.current())
	rev := len(m.states)
	if kind == watch.Deleted {
		delete(next, name)
	} else {
		next[name] = fmt.Sprintf("%s@%d", label, rev)
	}
	m.states = append(m.states, next)
	m.events = append(m.events, fmt.Sprintf("%s %s %s@%d", kind, name, label, rev))
}

// TestModel runs random creates, updates, deletes, compactions and restarts on a
// few keys, and after each step compares lists at random revisions, paged ones
// too, and watch histories with the model.
func TestModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		file, err := os.CreateTemp(dir, "model")
		if err != nil {
			t.Fatal(err)
		}
		path := file.Name()
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var db *DB
		var s *store
		open := func() {
			if db, err = Open(ctx, Config{Path: path}); err == nil {
				s, err = db.newStore(podStoreConfig())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		open()
		defer func() { _ = db.Close() }()
		m := &modelStore{states: []map[string]string{{}, {}}, events: []string{"", ""}}
		name := rapid.SampledFrom([]string{"a", "ab", "a-b", "a.b", "b", "c"})

		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				n := name.Draw(t, "name")
				_, exists := m.current()[n]
				switch err := s.Create(ctx, podKey(n), pod(n), nil, 0); {
				case exists != storage.IsExist(err), !exists && err != nil:
					t.Fatalf("create %s: %v", n, err)
				case !exists:
					m.write(watch.Added, n, "")
				}
			},
			"update": func(t *rapid.T) {
				n, label := name.Draw(t, "name"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "label")
				was, exists := m.current()[n]
				err := s.GuaranteedUpdate(ctx, podKey(n), &example.Pod{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
					p := obj.(*example.Pod)
					p.Labels = map[string]string{"l": label}
					return p, nil
				}), nil)
				switch {
				case exists == storage.IsNotFound(err), exists && err != nil:
					t.Fatalf("update %s: %v", n, err)
				case exists && was[:1] != label: // else nothing changes
					m.write(watch.Modified, n, label)
				}
			},
			"delete": func(t *rapid.T) {
				n := name.Draw(t, "name")
				was, exists := m.current()[n]
				err := s.Delete(ctx, podKey(n), &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
				switch {
				case exists == storage.IsNotFound(err), exists && err != nil:
					t.Fatalf("delete %s: %v", n, err)
				case exists:
					label := ""
					if was[0] != '@' {
						label = was[:1]
					}
					m.write(watch.Deleted, n, label)
				}
			},
			"compact": func(t *rapid.T) {
				rev := rapid.IntRange(1, m.revision()).Draw(t, "revision")
				if err := db.Compact(ctx, pods, uint64(rev)); err != nil {
					t.Fatal(err)
				}
				m.compacted = max(m.compacted, rev)
			},
			"restart": func(t *rapid.T) {
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				open()
			},
			"": func(t *rapid.T) {
				rev := rapid.IntRange(1, m.revision()).Draw(t, "at")
				limit := rapid.Int64Range(0, 3).Draw(t, "limit")
				got, err := listPages(ctx, s, rev, limit)
				switch {
				case rev < m.compacted:
					if !apierrors.IsResourceExpired(err) {
						t.Fatalf("list at %d, compacted to %d: %v", rev, m.compacted, err)
					}
				case err != nil:
					t.Fatal(err)
				case !maps.Equal(got, m.states[rev]):
					t.Fatalf("list at %d: %v, want %v", rev, got, m.states[rev])
				}
				checkHistory(ctx, t, s, m, rev)
				if stats, _ := s.Stats(ctx); stats.ObjectCount != int64(len(m.current())) {
					t.Fatalf("%d objects counted, want %d", stats.ObjectCount, len(m.current()))
				}
			},
		})
	})
}

// listPages lists at exactly rev, page by page when limit is not 0.
func listPages(ctx context.Context, s *store, rev int, limit int64) (map[string]string, error) {
	found := map[string]string{}
	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything, ResourceVersion: fmt.Sprint(rev), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	opts.Predicate.Limit = limit
	for {
		list := &example.PodList{}
		if err := s.GetList(ctx, "/pods/", opts, list); err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			found[p.Name] = p.Labels["l"] + "@" + p.ResourceVersion
		}
		if list.RemainingItemCount != nil && list.Continue == "" {
			return nil, fmt.Errorf("remaining %d without a token", *list.RemainingItemCount)
		}
		if list.Continue == "" {
			return found, nil
		}
		opts.Predicate.Continue, opts.ResourceVersion, opts.ResourceVersionMatch = list.Continue, "", ""
	}
}

func checkHistory(ctx context.Context, t *rapid.T, s *store, m *modelStore, rev int) {
	w, err := s.Watch(ctx, "/pods", storage.ListOptions{Recursive: true, Predicate: storage.Everything, ResourceVersion: fmt.Sprint(rev)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if rev < m.compacted {
		if e := <-w.ResultChan(); e.Type != watch.Error || e.Object.(*metav1.Status).Reason != metav1.StatusReasonExpired {
			t.Fatalf("watch from %d, compacted to %d: %v", rev, m.compacted, e)
		}
		return
	}
	for _, want := range m.events[rev+1:] {
		e := <-w.ResultChan()
		p, ok := e.Object.(*example.Pod)
		if !ok {
			t.Fatalf("watch from %d: %v, want %s", rev, e, want)
		}
		if got := fmt.Sprintf("%s %s %s@%s", e.Type, p.Name, p.Labels["l"], p.ResourceVersion); got != want {
			t.Fatalf("watch from %d: %s, want %s", rev, got, want)
		}
	}
}
