// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// watchListQuery asks for what is there, then a bookmark, then what happens.
func watchListQuery(parameters ...string) map[string][]string {
	return watchQuery(append([]string{
		"sendInitialEvents=true", "resourceVersionMatch=NotOlderThan", "allowWatchBookmarks=true",
	}, parameters...)...)
}

// F10, F11: what is there as ADDED, then one bookmark that says so, then what
// happens: for every kind, in one namespace and in all, with and without objects.
func TestWatchList(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		for n := range 3 {
			for _, scope := range bothScopes {
				for _, resourceVersion := range []string{"", "0", r.list(t, scope, metav1.ListOptions{}).GetResourceVersion()} {
					list := r.list(t, scope, metav1.ListOptions{})
					w := r.server.watch(t, r.path(scope), watchListQuery("resourceVersion="+resourceVersion))
					initial := map[string]string{}
					for range n {
						event := w.next(t)
						if event.Type != watch.Added {
							t.Errorf("initial event %s", event)
						}
						initial[event.Object.GetNamespace()+"/"+event.Object.GetName()] = event.Object.GetResourceVersion()
					}
					if want := versions(list); !maps.Equal(initial, want) {
						t.Errorf("initial events are %v, the list is %v", initial, want)
					}
					checkBookmark(t, r, w.next(t), list.GetResourceVersion(), true)

					created := r.create(t, r.object("a", "live"))
					changed := r.label(t, "a", "live", "yes")
					r.delete(t, "a", "live")
					w.expect(t, is(watch.Added, created), is(watch.Modified, changed))
					if event := w.next(t); event.Type != watch.Deleted || event.Object.GetUID() != created.GetUID() ||
						revision(t, event.Object.GetResourceVersion()) <= revision(t, changed.GetResourceVersion()) {
						t.Errorf("%s does not end %s", event, is(watch.Modified, changed))
					}
					w.close()
				}
			}
			r.create(t, r.object("a", "o-"+strconv.Itoa(n)))
		}
	})
}

// checkBookmark checks that a bookmark is at a resourceVersion, of the kind, and
// carries nothing else.
func checkBookmark(t *testing.T, r *resourceClient, event rawEvent, resourceVersion string, initialEventsEnd bool) {
	t.Helper()
	if event.Type != watch.Bookmark {
		t.Errorf("got %s, want a bookmark", event)
		return
	}
	if event.Object.GetAPIVersion() != "kommit.dev/v1alpha1" || event.Object.GetKind() != r.kind {
		t.Errorf("the bookmark is a %s", event.Object.GroupVersionKind())
	}
	if event.Object.GetResourceVersion() != resourceVersion {
		t.Errorf("the bookmark is at %s, want %s", event.Object.GetResourceVersion(), resourceVersion)
	}
	want := map[string]string{}
	if initialEventsEnd {
		want[metav1.InitialEventsAnnotationKey] = "true"
	}
	if got := event.Object.GetAnnotations(); !maps.Equal(got, want) {
		t.Errorf("the bookmark has annotations %v, want %v", got, want)
	}
	metadata, _, _ := unstructured.NestedMap(event.Object.Object, "metadata")
	delete(metadata, "resourceVersion")
	delete(metadata, "annotations")
	rest := maps.Clone(event.Object.Object)
	delete(rest, "apiVersion")
	delete(rest, "kind")
	rest["metadata"] = metadata
	if !blank(rest) {
		t.Errorf("the bookmark carries %v", rest)
	}
}

// blank says whether a JSON value has only empty values in it.
func blank(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			if !blank(v) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	case string:
		return value == ""
	}
	return value == nil
}

// F20: a watch without a resourceVersion, or from any, begins with what is there.
func TestWatchBeginsWithWhatIsThere(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		one := r.create(t, r.object("a", "one"))
		two := r.create(t, r.object("a", "two"))
		for _, scope := range bothScopes {
			for _, resourceVersion := range []string{"", "0"} {
				w := r.server.watch(t, r.path(scope), watchQuery("resourceVersion="+resourceVersion))
				w.expect(t, is(watch.Added, one), is(watch.Added, two))
				next := r.create(t, r.object("a", "next"))
				w.expect(t, is(watch.Added, next))
				w.close()
				r.delete(t, "a", "next")
			}
		}
	})
}

// F19: one object is watched by its name, in the field selector or in the old
// path for it, and nothing of the others is seen.
func TestWatchOfOneObject(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		for name, open := range map[string]func() *rawWatch{
			"by field": func() *rawWatch {
				return r.server.watch(t, r.path("a"), watchQuery("fieldSelector=metadata.name=one"))
			},
			"by field in all namespaces": func() *rawWatch {
				return r.server.watch(t, r.path(""), watchQuery("fieldSelector=metadata.name=one,metadata.namespace=a"))
			},
			"by path": func() *rawWatch {
				return r.server.watch(t, "/apis/kommit.dev/v1alpha1/watch/namespaces/a/"+r.resource+"/one", nil)
			},
		} {
			t.Run(name, func(t *testing.T) {
				for _, there := range []bool{true, false} {
					var created *unstructured.Unstructured
					if there {
						created = r.create(t, r.object("a", "one"))
					}
					w := open()
					r.create(t, r.object("a", "one-more"))
					r.create(t, r.object("ab", "one"))
					if !there {
						created = r.create(t, r.object("a", "one"))
					}
					w.expect(t, is(watch.Added, created), is(watch.Modified, r.label(t, "a", "one", "yes")))
					r.delete(t, "ab", "one")
					r.delete(t, "a", "one-more")
					r.delete(t, "a", "one")
					if event := w.next(t); event.Type != watch.Deleted || event.Object.GetUID() != created.GetUID() {
						t.Errorf("got %s, want DELETED one", event)
					}
					w.close()
				}
			})
		}
	})
}

// F17: a watch from the resourceVersion of event N goes on with N+1, as what it
// was.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		start := r.list(t, "", metav1.ListOptions{}).GetResourceVersion()
		r.create(t, r.object("a", "one"))
		r.label(t, "a", "one", "1")
		r.create(t, r.object("ab", "two"))
		r.label(t, "a", "one", "2")
		r.delete(t, "a", "one")
		r.create(t, r.object("a", "one"))
		r.label(t, "ab", "two", "3")
		for scope, types := range map[string][]watch.EventType{
			"a": {watch.Added, watch.Modified, watch.Modified, watch.Deleted, watch.Added},
			"":  {watch.Added, watch.Modified, watch.Added, watch.Modified, watch.Deleted, watch.Added, watch.Modified},
		} {
			w := r.server.watch(t, r.path(scope), watchQuery("resourceVersion="+start))
			all := []string{}
			from := []string{start}
			for i, want := range types {
				event := w.next(t)
				if event.Type != want {
					t.Errorf("namespace %q: event %d is %s, want %s", scope, i, event, want)
				}
				all = append(all, event.String())
				from = append(from, event.Object.GetResourceVersion())
			}
			w.close()
			for i, resourceVersion := range from[:len(from)-1] {
				w := r.server.watch(t, r.path(scope), watchQuery("resourceVersion="+resourceVersion))
				w.expect(t, all[i:]...)
				w.close()
			}
		}
	})
}

// F23: what is no longer in the history is an ERROR event with 410 Expired, and
// the end; a compacted resourceVersion itself still is a start.
func TestWatchOfWhatIsCompacted(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		old := r.create(t, r.object("a", "one"))
		r.label(t, "a", "one", "1")
		edge := r.label(t, "a", "one", "2")
		last := r.label(t, "a", "one", "3")
		r.compact(t, edge.GetResourceVersion())
		for _, scope := range bothScopes {
			w := r.server.watch(t, r.path(scope), watchQuery("resourceVersion="+old.GetResourceVersion()))
			if status := w.failed(t); status.Code != http.StatusGone || status.Reason != metav1.StatusReasonExpired {
				t.Errorf("got %+v, want 410 Expired", status)
			}
			w = r.server.watch(t, r.path(scope), watchQuery("resourceVersion="+edge.GetResourceVersion()))
			w.expect(t, is(watch.Modified, last))
			w.close()
		}
	})
}

// A watch-list that is not to be older than a future which this server has not
// seen says so, and lets the client come back.
func TestWatchListOfTheFuture(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		r.create(t, r.object("a", "one"))
		for _, scope := range bothScopes {
			w := r.server.watch(t, r.path(scope), watchListQuery("resourceVersion=1000"))
			if status := w.failed(t); status.Code != http.StatusGatewayTimeout || !hasCause(status, metav1.CauseTypeResourceVersionTooLarge) ||
				status.Details.RetryAfterSeconds == 0 {
				t.Errorf("got %+v, want 504 with the cause and when to come back", status)
			}
		}
	})
}

// failed returns the error that is all a watch says.
func (w *rawWatch) failed(t *testing.T) metav1.Status {
	t.Helper()
	events := w.ended(t)
	if len(events) != 1 || events[0].Type != watch.Error {
		t.Fatalf("got %v, want one error", events)
	}
	var status metav1.Status
	convert(t, events[0].Object, &status)
	if status.Kind != "Status" {
		t.Errorf("the error is a %s", status.Kind)
	}
	return status
}

// F34: a watch is there as soon as it is asked for, not with its first event.
// Nothing is written here: watch returns when it has the header.
func TestWatchAnswersAtOnce(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		for _, query := range []map[string][]string{
			watchQuery(), watchQuery("resourceVersion=0"), watchQuery("resourceVersion=1"),
			watchQuery("fieldSelector=metadata.name=none"), watchQuery("allowWatchBookmarks=true"),
		} {
			for _, scope := range bothScopes {
				w := r.server.watch(t, r.path(scope), query)
				if got := w.response.Header.Get("Content-Type"); got != "application/json" {
					t.Errorf("content type is %q", got)
				}
				w.close()
			}
		}
	})
}

// A watch that allows bookmarks gets them while nothing happens; one that does
// not gets none. A write of another object moves them on.
func TestBookmarksOfAnIdleResource(t *testing.T) {
	t.Parallel()
	s := serveContract(t, bolt.Config{
		Path: filepath.Join(t.TempDir(), "kommit.db"), BookmarkInterval: 20 * time.Millisecond,
	}, t.TempDir())
	eachKind(t, s, func(t *testing.T, r *resourceClient) {
		for _, scope := range bothScopes {
			now := r.list(t, scope, metav1.ListOptions{}).GetResourceVersion()
			silent := s.watch(t, r.path(scope), watchQuery("resourceVersion="+now))
			w := s.watch(t, r.path(scope), watchQuery("allowWatchBookmarks=true", "resourceVersion="+now))
			for range 3 {
				checkBookmark(t, r, w.next(t), now, false)
			}
			elsewhere := r.create(t, r.object("ab", "elsewhere"))
			seen := []string{}
			for event := range events(t, w) {
				if event.Type == watch.Bookmark && event.Object.GetResourceVersion() == elsewhere.GetResourceVersion() {
					break
				}
				if event.Type != watch.Bookmark {
					seen = append(seen, event.String())
				}
			}
			want := []string{}
			if scope == "" {
				want = append(want, is(watch.Added, elsewhere))
			}
			if !slices.Equal(seen, want) {
				t.Errorf("namespace %q: seen %v, want %v", scope, seen, want)
			}
			created := r.create(t, r.object("a", "one"))
			silent.expect(t, append(want, is(watch.Added, created))...)
			w.close()
			silent.close()
			r.delete(t, "a", "one")
			r.delete(t, "ab", "elsewhere")
		}
	})
}

func events(t *testing.T, w *rawWatch) func(yield func(rawEvent) bool) {
	return func(yield func(rawEvent) bool) {
		for yield(w.next(t)) {
		}
	}
}

// A watch ends at timeoutSeconds, cleanly and after a bookmark of where it was.
func TestWatchEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	type ending struct {
		resource *resourceClient
		watch    *rawWatch
		at       string
	}
	s := startContractServer(t)
	s.createTargets(t) // so that nothing is written once the watches are open
	var open []ending
	eachKind(t, s, func(_ *testing.T, r *resourceClient) {
		r.create(t, r.object("a", "one"))
		at := r.list(t, "a", metav1.ListOptions{}).GetResourceVersion()
		w := r.server.watch(t, r.path("a"), watchQuery("timeoutSeconds=3", "allowWatchBookmarks=true", "resourceVersion="+at))
		list := r.server.watch(t, r.path("a"), watchListQuery("timeoutSeconds=3", "fieldSelector=metadata.name=one"))
		list.next(t)
		checkBookmark(t, r, list.next(t), at, true)
		open = append(open, ending{r, w, at}, ending{r, list, at})
	})
	for _, o := range open {
		events := o.watch.ended(t)
		if len(events) != 1 {
			t.Fatalf("got %v, want one bookmark", events)
		}
		checkBookmark(t, o.resource, events[0], o.at, false)
	}
}
