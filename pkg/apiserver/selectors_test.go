// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// selections say which of the objects of createSelectable a selector selects.
func selections() []struct {
	name, label, field string
	want               []string
} {
	return []struct {
		name, label, field string
		want               []string
	}{
		{name: "none", want: []string{"plain", "x", "x-too", "y"}},
		{name: "equality", label: "l=x", want: []string{"x", "x-too"}},
		{name: "double equality", label: "l==x", want: []string{"x", "x-too"}},
		{name: "inequality", label: "l!=x", want: []string{"plain", "y"}},
		{name: "in", label: "l in (x,z)", want: []string{"x", "x-too"}},
		{name: "in several", label: "l in (x,y)", want: []string{"x", "x-too", "y"}},
		{name: "notin", label: "l notin (x)", want: []string{"plain", "y"}},
		{name: "exists", label: "l", want: []string{"x", "x-too", "y"}},
		{name: "does not exist", label: "!l", want: []string{"plain"}},
		{name: "more than", label: "n>1", want: []string{"x-too"}},
		{name: "less than", label: "n<2", want: []string{"x"}},
		{name: "both", label: "l=x,n=2", want: []string{"x-too"}},
		{name: "nothing", label: "l=z"},
		{name: "name", field: "metadata.name=y", want: []string{"y"}},
		{name: "another name", field: "metadata.name!=y", want: []string{"plain", "x", "x-too"}},
		{name: "unknown name", field: "metadata.name=z"},
		{name: "namespace", field: "metadata.namespace=a", want: []string{"plain", "x", "x-too", "y"}},
		{name: "another namespace", field: "metadata.namespace=ab"},
		{name: "name and label", label: "l=x", field: "metadata.name=x-too", want: []string{"x-too"}},
		{name: "name and label apart", label: "l=x", field: "metadata.name=y"},
	}
}

func createSelectable(t *testing.T, r *resourceClient) {
	t.Helper()
	for name, labels := range map[string]map[string]string{
		"plain": nil,
		"x":     {"l": "x", "n": "1"},
		"x-too": {"l": "x", "n": "2"},
		"y":     {"l": "y"},
	} {
		r.create(t, r.labelled("a", name, labels))
	}
}

// F18: a selector selects the same on list, on watch, in pages, in a watch-list
// and on deletecollection.
func TestSelectors(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		createSelectable(t, r)
		for _, test := range selections() {
			t.Run(test.name, func(t *testing.T) {
				options := metav1.ListOptions{LabelSelector: test.label, FieldSelector: test.field}
				for _, scope := range bothScopes {
					if got := names(versions(r.list(t, scope, options))); !slices.Equal(got, test.want) {
						t.Errorf("list of namespace %q: %q, want %q", scope, got, test.want)
					}
					pages := map[string]string{}
					paged := options
					for paged.Limit = 1; ; {
						page := r.list(t, scope, paged)
						maps.Copy(pages, versions(page))
						if paged.Continue = page.GetContinue(); paged.Continue == "" {
							break
						}
					}
					if got := names(pages); !slices.Equal(got, test.want) {
						t.Errorf("pages of namespace %q: %q, want %q", scope, got, test.want)
					}
					w := r.server.watch(t, r.path(scope), watchListQuery("labelSelector="+test.label, "fieldSelector="+test.field))
					watched := map[string]string{}
					for event := range events(t, w) {
						if event.Type == watch.Bookmark {
							break
						}
						watched["a/"+event.Object.GetName()] = ""
					}
					w.close()
					if got := names(watched); !slices.Equal(got, test.want) {
						t.Errorf("watch of namespace %q: %q, want %q", scope, got, test.want)
					}
				}

				if err := r.in("a").DeleteCollection(t.Context(), metav1.DeleteOptions{}, options); err != nil {
					t.Fatal(err)
				}
				left := names(versions(r.list(t, "a", metav1.ListOptions{})))
				for _, name := range []string{"plain", "x", "x-too", "y"} {
					if deleted := !slices.Contains(left, name); deleted != slices.Contains(test.want, name) {
						t.Errorf("deletecollection: %s was deleted: %t", name, deleted)
					}
				}
				if err := r.in("a").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
					t.Fatal(err)
				}
				createSelectable(t, r)
			})
		}
	})
}

// names are the names in keys of versions, in order.
func names(versions map[string]string) []string {
	var all []string
	for key := range versions {
		all = append(all, key[len("a/"):])
	}
	slices.Sort(all)
	return all
}

// F18: what cannot be selected by is refused by all verbs, and is never the same
// as everything.
func TestUnsupportedSelectorsAreRefused(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		r.create(t, r.object("a", "one"))
		for _, selector := range []string{
			"fieldSelector=spec.message=x", "fieldSelector=spec.url!=x", "fieldSelector=status.phase=Ready",
			"fieldSelector=metadata.uid=x", "fieldSelector=metadata.name=one,spec.branch=main", "fieldSelector=metadata.labels.l=x",
			"fieldSelector=name", "labelSelector=a in x", "labelSelector=a=b=c", "labelSelector=-a=x", "labelSelector=a~b",
		} {
			for _, scope := range bothScopes {
				list := watchQuery(selector)
				list.Del("watch")
				for name, request := range map[string]struct {
					method string
					query  url.Values
				}{
					"list":             {http.MethodGet, list},
					"watch":            {http.MethodGet, watchQuery(selector)},
					"watch-list":       {http.MethodGet, watchListQuery(selector)},
					"deletecollection": {http.MethodDelete, list},
				} {
					if scope == "" && name == "deletecollection" {
						continue // there is none over all namespaces
					}
					answer := r.server.do(t, request.method, r.path(scope), request.query, "")
					if answer.code != http.StatusBadRequest {
						t.Errorf("%s %s, namespace %q: %d, want 400: %.300s", name, selector, scope, answer.code, answer.body)
					} else if reason := answer.status(t).Reason; reason != metav1.StatusReasonBadRequest {
						t.Errorf("%s %s, namespace %q: reason %q", name, selector, scope, reason)
					}
				}
			}
		}
		if got := r.list(t, "", metav1.ListOptions{}); len(got.Items) != 1 {
			t.Errorf("left are %v", versions(got))
		}
	})
}

// F18: an object that begins to match a watch's selector is added, one that
// ceases to is deleted, and one that never did is not seen.
func TestWatchFollowsItsSelector(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		for name, test := range map[string]struct {
			selector string
			in, out  string
		}{
			"equality":       {"touched=yes", "yes", "no"},
			"inequality":     {"touched!=no", "yes", "no"},
			"in":             {"touched in (yes,maybe)", "maybe", "no"},
			"notin":          {"touched notin (no)", "yes", "no"},
			"does not exist": {"!never,touched=yes", "yes", "no"},
		} {
			t.Run(name, func(t *testing.T) {
				for _, scope := range bothScopes {
					w := r.server.watch(t, r.path(scope), watchQuery("labelSelector="+test.selector))
					r.create(t, r.labelled("a", "outside", map[string]string{"touched": "no"}))
					r.create(t, r.labelled("a", "one", map[string]string{"touched": "no"}))
					entered := r.label(t, "a", "one", test.in)
					patched := r.label(t, "a", "outside", "no")
					if patched.GetLabels()["touched"] != "no" {
						t.Errorf("labels are %v", patched.GetLabels())
					}
					w.expect(t, is(watch.Added, entered))
					left := r.label(t, "a", "one", test.out)
					event := w.next(t)
					if event.String() != is(watch.Deleted, left) {
						t.Errorf("got %s, want %s", event, is(watch.Deleted, left))
					}
					if got := event.Object.GetLabels()["touched"]; got != test.in {
						t.Errorf("the object that left is shown with %q, want its last state inside, %q", got, test.in)
					}
					again := r.label(t, "a", "one", test.in)
					w.expect(t, is(watch.Added, again))
					r.delete(t, "a", "outside")
					r.delete(t, "a", "one")
					if event := w.next(t); event.Type != watch.Deleted || event.Object.GetName() != "one" {
						t.Errorf("got %s, want DELETED one", event)
					}
					w.close()
				}
			})
		}
	})
}
