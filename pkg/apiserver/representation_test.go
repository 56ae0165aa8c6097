// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"

	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

const (
	asTable    = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata = "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asList     = "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// What `kubectl get` and `kubectl get -w` show: one row per object, the columns
// once.
func TestTables(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		one := r.create(t, r.object("a", "one"))
		two := r.create(t, r.object("a", "two"))
		now := r.list(t, "a", metav1.ListOptions{}).GetResourceVersion()
		for _, scope := range bothScopes {
			var table metav1.Table
			r.server.do(t, http.MethodGet, r.path(scope), nil, "", asTable).decode(t, &table)
			if table.Kind != "Table" || table.ResourceVersion != now {
				t.Errorf("a %s at %s, want a Table at %s", table.Kind, table.ResourceVersion, now)
			}
			checkRows(t, table, one, two)

			var page metav1.Table
			r.server.do(t, http.MethodGet, r.path(scope), url.Values{"limit": {"1"}}, "", asTable).decode(t, &page)
			if page.Continue == "" || page.RemainingItemCount == nil || *page.RemainingItemCount != 1 {
				t.Errorf("a page of a table has continue %q and %v left", page.Continue, page.RemainingItemCount)
			}
			checkRows(t, page, one)

			w := r.server.watch(t, r.path(scope), watchListQuery(), asTable)
			created := r.create(t, r.object("a", "live"))
			r.delete(t, "a", "live")
			for i, want := range []struct {
				eventType watch.EventType
				obj       *unstructured.Unstructured
			}{{watch.Added, one}, {watch.Added, two}, {watch.Bookmark, nil}, {watch.Added, created}, {watch.Deleted, created}} {
				event := w.next(t)
				var table metav1.Table
				convert(t, event.Object, &table)
				if event.Type != want.eventType || table.Kind != "Table" || (len(table.ColumnDefinitions) > 0) != (i == 0) {
					t.Errorf("event %d is %s of a %s with %d columns", i, event.Type, table.Kind, len(table.ColumnDefinitions))
				}
				switch {
				case want.obj == nil:
					if table.ResourceVersion != now || len(table.Rows) != 1 {
						t.Errorf("the bookmark is at %q, want %s", table.ResourceVersion, now)
					}
				case len(table.Rows) != 1 || rowName(t, table.Rows[0]) != want.obj.GetName():
					t.Errorf("event %d has the rows %v, want %s", i, table.Rows, want.obj.GetName())
				}
			}
			w.close()
			now = r.list(t, "a", metav1.ListOptions{}).GetResourceVersion()
		}
		var single metav1.Table
		r.server.do(t, http.MethodGet, r.path("a")+"/one", nil, "", asTable).decode(t, &single)
		checkRows(t, single, one)
	})
}

func checkRows(t *testing.T, table metav1.Table, objects ...*unstructured.Unstructured) {
	t.Helper()
	if len(table.ColumnDefinitions) < 4 || len(table.Rows) != len(objects) {
		t.Fatalf("%d columns and %d rows, want %d rows", len(table.ColumnDefinitions), len(table.Rows), len(objects))
	}
	for i, row := range table.Rows {
		if len(row.Cells) != len(table.ColumnDefinitions) || rowName(t, row) != objects[i].GetName() {
			t.Errorf("row %d is %v, want %s", i, row.Cells, objects[i].GetName())
		}
		var partial metav1.PartialObjectMetadata
		if err := json.Unmarshal(row.Object.Raw, &partial); err != nil {
			t.Fatal(err)
		}
		if partial.UID != objects[i].GetUID() || partial.ResourceVersion != objects[i].GetResourceVersion() {
			t.Errorf("row %d is of %s at %s", i, partial.UID, partial.ResourceVersion)
		}
	}
}

// rowName is the first cell of a row.
func rowName(t *testing.T, row metav1.TableRow) string {
	t.Helper()
	if len(row.Cells) == 0 {
		t.Fatal("a row without cells")
	}
	name, _ := row.Cells[0].(string)
	return name
}

func convert(t *testing.T, obj *unstructured.Unstructured, into any) {
	t.Helper()
	data, err := obj.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// What the collectors of the control plane read of every resource: metadata and
// nothing else, on list and on watch.
func TestPartialObjectMetadata(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		one := r.create(t, r.labelled("a", "one", map[string]string{"l": "v"}))
		for _, scope := range bothScopes {
			now := r.list(t, "a", metav1.ListOptions{}).GetResourceVersion()
			answer := r.server.do(t, http.MethodGet, r.path(scope), nil, "", asList)
			var list metav1.PartialObjectMetadataList
			answer.decode(t, &list)
			if list.Kind != "PartialObjectMetadataList" || list.ResourceVersion != now || len(list.Items) != 1 ||
				list.Items[0].UID != one.GetUID() || list.Items[0].Labels["l"] != "v" || strings.Contains(string(answer.body), `"spec":`) {
				t.Errorf("got %s", answer.body)
			}
			w := r.server.watch(t, r.path(scope), watchListQuery(), asMetadata)
			added, bookmark := w.next(t), w.next(t)
			if added.String() != is(watch.Added, one) || added.Object.GetKind() != "PartialObjectMetadata" || added.Object.Object["spec"] != nil {
				t.Errorf("got %s: %v", added, added.Object)
			}
			if bookmark.Type != watch.Bookmark || bookmark.Object.GetResourceVersion() != now ||
				bookmark.Object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				t.Errorf("got %s: %v", bookmark, bookmark.Object)
			}
			created := r.create(t, r.object("a", "live"))
			w.expect(t, is(watch.Added, created))
			r.delete(t, "a", "live")
			if event := w.next(t); event.Type != watch.Deleted || event.Object.GetUID() != created.GetUID() {
				t.Errorf("got %s, want DELETED live", event)
			}
			w.close()
		}
	})
}

// F72: clients that prefer an encoding that is not spoken here are told so by a
// status that lets them fall back, or get the JSON that they accept as well.
func TestEncodingsFallBackToJSON(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		r.create(t, r.object("a", "one"))
		body, err := json.Marshal(r.object("a", "two"))
		if err != nil {
			t.Fatal(err)
		}
		for _, mediaType := range []string{"application/cbor", "application/vnd.kubernetes.protobuf"} {
			for name, request := range map[string]struct {
				method, path, body string
				query              url.Values
				headers            []string
				want               int
			}{
				"create in it":              {http.MethodPost, r.path("a"), string(body), nil, []string{"Content-Type: " + mediaType}, http.StatusUnsupportedMediaType},
				"update in it":              {http.MethodPut, r.path("a") + "/one", string(body), nil, []string{"Content-Type: " + mediaType}, http.StatusUnsupportedMediaType},
				"apply in it":               {http.MethodPatch, r.path("a") + "/one", string(body), url.Values{"fieldManager": {"test"}}, []string{"Content-Type: application/apply-patch+cbor"}, http.StatusUnsupportedMediaType},
				"get nothing else":          {http.MethodGet, r.path("a") + "/one", "", nil, []string{"Accept: " + mediaType}, http.StatusNotAcceptable},
				"list nothing else":         {http.MethodGet, r.path(""), "", nil, []string{"Accept: " + mediaType}, http.StatusNotAcceptable},
				"watch nothing else":        {http.MethodGet, r.path(""), "", watchQuery(), []string{"Accept: " + mediaType}, http.StatusNotAcceptable},
				"get it or JSON":            {http.MethodGet, r.path("a") + "/one", "", nil, []string{"Accept: " + mediaType + ",application/json"}, http.StatusOK},
				"list it or JSON":           {http.MethodGet, r.path(""), "", nil, []string{"Accept: " + mediaType + ",application/json;q=0.9"}, http.StatusOK},
				"list it or anything":       {http.MethodGet, r.path(""), "", nil, []string{"Accept: " + mediaType + ", */*"}, http.StatusOK},
				"create, answer it or JSON": {http.MethodPost, r.path("a"), string(body), url.Values{"dryRun": {"All"}}, []string{"Content-Type: application/json", "Accept: " + mediaType + ",application/json"}, http.StatusCreated},
			} {
				answer := r.server.do(t, request.method, request.path, request.query, request.body, request.headers...)
				if answer.code != request.want {
					t.Errorf("%s, %s: %d, want %d: %.300q", mediaType, name, answer.code, request.want, answer.body)
				} else if got := answer.header.Get("Content-Type"); answer.code < http.StatusBadRequest && got != "application/json" {
					t.Errorf("%s, %s: the answer is %q", mediaType, name, got)
				}
			}
			w := r.server.watch(t, r.path("a"), watchQuery(), "Accept: "+mediaType+",application/json")
			if event := w.next(t); event.Type != watch.Added || event.Object.GetKind() != r.kind {
				t.Errorf("watch of %s or JSON: %s %s", mediaType, event, event.Object.GetKind())
			}
			w.close()
		}
		if list := r.list(t, "a", metav1.ListOptions{FieldSelector: "metadata.name=two"}); len(list.Items) != 0 {
			t.Errorf("a refused or dry write is there: %v", versions(list))
		}
	})
}

// F72: client-go that prefers CBOR takes 415 as a reason to write JSON from then
// on, and does all it does with JSON.
func TestClientsThatPreferCBOR(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	s := startContractServer(t)
	first := &resourceClient{testKind: testKinds()[0], server: s}
	if _, err := first.in("a").Create(t.Context(), first.object("a", "one"), metav1.CreateOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("the first write, in CBOR: %v, want 415", err)
	}
	eachKind(t, s, func(t *testing.T, r *resourceClient) {
		w, err := r.in("a").Watch(t.Context(), metav1.ListOptions{ResourceVersion: r.list(t, "a", metav1.ListOptions{}).GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		created := r.create(t, r.object("a", "one"))
		r.label(t, "a", "one", "yes")
		r.delete(t, "a", "one")
		for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
			event := <-w.ResultChan()
			if obj, ok := event.Object.(*unstructured.Unstructured); !ok || event.Type != want || obj.GetUID() != created.GetUID() {
				t.Errorf("got %s %v, want %s one", event.Type, event.Object, want)
			}
		}
	})
	typed, err := versioned.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := typed.KommitV1alpha1().GitTargets("a").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("typed list: %v, %v", list, err)
	}
}

// F35: whatever carries a resourceVersion carries one that clients can compare,
// and none is lower than one given before.
func TestResourceVersionsCompare(t *testing.T) {
	t.Parallel()
	s := serveContract(t, bolt.Config{
		Path: filepath.Join(t.TempDir(), "kommit.db"), BookmarkInterval: 20 * time.Millisecond,
	}, t.TempDir())
	eachKind(t, s, func(t *testing.T, r *resourceClient) {
		newest := "1"
		given := func(what, resourceVersion string) {
			t.Helper()
			order, err := resourceversion.CompareResourceVersion(newest, resourceVersion)
			if err != nil || order > 0 {
				t.Errorf("%s has the resourceVersion %q after %q: %v", what, resourceVersion, newest, err)
				return
			}
			newest = resourceVersion
		}
		listed := func(what string) {
			t.Helper()
			for form, header := range map[string]string{"list": "Accept: application/json", "table": asTable, "metadata": asList} {
				for _, scope := range bothScopes {
					var list metav1.PartialObjectMetadataList
					r.server.do(t, http.MethodGet, r.path(scope), nil, "", header).decode(t, &list)
					given(what+", as "+form, list.ResourceVersion)
				}
			}
		}
		listed("empty")
		w := s.watch(t, r.path(""), watchListQuery())
		created := r.create(t, r.object("a", "one"))
		given("created", created.GetResourceVersion())
		given("labelled", r.label(t, "a", "one", "yes").GetResourceVersion())
		got, err := r.in("a").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		given("got", got.GetResourceVersion())
		given("status", setReady(t, r, got).GetResourceVersion())
		status, err := r.in("a").Get(t.Context(), "one", metav1.GetOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		given("got status", status.GetResourceVersion())
		listed("filled")
		var table metav1.Table
		s.do(t, http.MethodGet, r.path("a")+"/one", nil, "", asTable).decode(t, &table)
		given("table of one", table.ResourceVersion)
		r.delete(t, "a", "one")
		listed("deleted")

		newest = "1"
		for seen := 0; seen < 6; { // as ADDED, MODIFIED twice, DELETED and two bookmarks after it
			event := w.next(t)
			if event.Object.GetName() == "prod" || (event.Type == watch.Bookmark && seen < 4) {
				given("event", event.Object.GetResourceVersion())
				continue
			}
			given(string(event.Type), event.Object.GetResourceVersion())
			seen++
		}
		w.close()
	})
}
