// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	storagemetrics "k8s.io/apiserver/pkg/storage/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
)

// What each request may cost: exactly so many read transactions, and so many
// objects decrypted. Upstream bounds etcd3 by its client's calls instead.
func TestCostOfARequest(t *testing.T) {
	const objects = 100
	name := func(i int) string { return fmt.Sprintf("pod-%02d", i) }
	list := func(opts storage.ListOptions) func(*testing.T, *testStore, string) {
		return func(t *testing.T, s *testStore, _ string) { mustList(t, s, opts) }
	}
	page := func(limit int64, pick string) storage.ListOptions {
		p := storage.Everything
		p.Limit, p.GetAttrs = limit, storage.DefaultNamespaceScopedAttr
		if pick != "" {
			p.Field = fields.OneTermEqualSelector("metadata.name", pick)
		}
		return storage.ListOptions{Predicate: p}
	}
	for _, test := range []struct {
		name                string
		run                 func(t *testing.T, s *testStore, firstRV string)
		transactions, reads uint64
	}{
		{"list of all", list(storage.ListOptions{}), 1, objects},
		{"page", list(page(10, "")), 1, 10},
		{"page of an object that is first", list(page(1, name(0))), 1, 1},
		{"page of an object that is last", list(page(1, name(objects-1))), 7, objects},
		{"list of an object that is last", list(page(0, name(objects-1))), 1, objects},
		{"list at an older revision", func(t *testing.T, s *testStore, rv string) { mustList(t, s, exactly(rv)) }, 1, objects - 1},
		{"list of one key", func(t *testing.T, s *testStore, _ string) {
			if err := s.GetList(t.Context(), podKey(name(5)), storage.ListOptions{Predicate: storage.Everything}, &example.PodList{}); err != nil {
				t.Fatal(err)
			}
		}, 1, 1},
		{"get", func(t *testing.T, s *testStore, _ string) {
			if err := s.Get(t.Context(), podKey(name(5)), storage.GetOptions{}, &example.Pod{}); err != nil {
				t.Fatal(err)
			}
		}, 1, 1},
		{"create", func(t *testing.T, s *testStore, _ string) { mustCreate(t, s, "one-more") }, 0, 0},
		{"update", func(t *testing.T, s *testStore, _ string) { mustLabel(t, s, name(5), "x") }, 1, 1},
		{"delete", func(t *testing.T, s *testStore, _ string) { mustDelete(t, s, name(5)) }, 1, 1},
		{"watch-list", func(t *testing.T, s *testStore, _ string) {
			initial, pred := true, storage.Everything
			pred.AllowWatchBookmarks = true
			w := startWatch(t, s, storage.ListOptions{SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Predicate: pred})
			for e := range w.ResultChan() {
				if e.Type == watch.Bookmark {
					return
				}
			}
			t.Fatal("the watch ended before the bookmark")
		}, 1, objects},
		{"stats", func(t *testing.T, s *testStore, _ string) {
			if got, err := s.Stats(t.Context()); err != nil || got.ObjectCount != objects {
				t.Errorf("%+v, %v, want %d objects", got, err, objects)
			}
		}, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newTestStore(t)
			var beforeLast string
			for i := range objects {
				p := mustCreate(t, s, name(i))
				if i == objects-2 {
					beforeLast = p.ResourceVersion
				}
			}
			s.reads()
			test.run(t, s, beforeLast)
			transactions, reads := s.reads()
			if transactions != test.transactions || reads != test.reads {
				t.Errorf("%d transactions and %d objects decrypted, want %d and %d", transactions, reads, test.transactions, test.reads)
			}
		})
	}
}

func TestListMetrics(t *testing.T) {
	storagemetrics.Register()
	legacyregistry.Reset()
	t.Cleanup(legacyregistry.Reset)
	s := newTestStore(t)
	for i := range 3 {
		mustCreate(t, s, fmt.Sprintf("pod-%d", i))
	}
	pick := storage.Everything
	pick.GetAttrs = storage.DefaultNamespaceScopedAttr
	pick.Field = fields.OneTermEqualSelector("metadata.name", "pod-1")
	mustList(t, s, storage.ListOptions{Predicate: pick})
	want := ""
	for _, metric := range []struct {
		name, help, labels string
		value              int
	}{
		{"evaluated_objects_total", "Number of objects tested in the course of serving a LIST request from storage", "", 3},
		{"fetched_objects_total", "Number of objects read from storage in the course of serving a LIST request", `index="",`, 3},
		{"returned_objects_total", "Number of objects returned for a LIST request from storage", "", 1},
		{"total", "Number of LIST requests served from storage", `index="",`, 1},
	} {
		full := "apiserver_storage_list_" + metric.name
		want += fmt.Sprintf("# HELP %s [ALPHA] %s\n# TYPE %s counter\n%s{group=\"\",%sresource=\"pods\",storage=\"bolt\"} %d\n",
			full, metric.help, full, full, metric.labels, metric.value)
	}
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want),
		"apiserver_storage_list_total", "apiserver_storage_list_fetched_objects_total",
		"apiserver_storage_list_evaluated_objects_total", "apiserver_storage_list_returned_objects_total"); err != nil {
		t.Error(err)
	}
}
