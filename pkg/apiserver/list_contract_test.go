// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// bothScopes are a namespace and all of them.
var bothScopes = []string{"a", ""}

func TestListAtEachResourceVersion(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		for _, name := range []string{"one", "two", "three"} {
			r.create(t, r.object("a", name))
		}
		before := r.list(t, "a", metav1.ListOptions{})
		r.label(t, "a", "one", "yes")
		r.delete(t, "a", "two")
		after := r.list(t, "a", metav1.ListOptions{})

		for _, scope := range bothScopes {
			for name, test := range map[string]struct {
				options metav1.ListOptions
				want    *unstructured.UnstructuredList
			}{
				"unset":                       {metav1.ListOptions{}, after},
				"any":                         {metav1.ListOptions{ResourceVersion: "0"}, after},
				"any, said so":                {metav1.ListOptions{ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, after},
				"an older one":                {metav1.ListOptions{ResourceVersion: before.GetResourceVersion()}, after},
				"not older than an older one": {metav1.ListOptions{ResourceVersion: before.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, after},
				"not older than the newest":   {metav1.ListOptions{ResourceVersion: after.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, after},
				"exactly an older one":        {metav1.ListOptions{ResourceVersion: before.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact}, before},
				"exactly the newest":          {metav1.ListOptions{ResourceVersion: after.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact}, after},
				"an older one, with a limit":  {metav1.ListOptions{ResourceVersion: before.GetResourceVersion(), Limit: 10}, before},
				"exactly an older one, by name": {metav1.ListOptions{
					ResourceVersion: before.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact, FieldSelector: "metadata.name!=nothing",
				}, before},
			} {
				list := r.list(t, scope, test.options)
				if got, want := versions(list), versions(test.want); !maps.Equal(got, want) {
					t.Errorf("%s, namespace %q: got %v, want %v", name, scope, got, want)
				}
				if list.GetResourceVersion() != test.want.GetResourceVersion() {
					t.Errorf("%s, namespace %q: resourceVersion %s, want %s", name, scope, list.GetResourceVersion(), test.want.GetResourceVersion())
				}
			}
		}
	})
}

// What a client cannot have meant is refused, and a future that this server has
// not seen is neither an empty list nor the present.
func TestListOptionsRefused(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		r.create(t, r.object("a", "one"))
		future := strconv.FormatUint(revision(t, r.list(t, "", metav1.ListOptions{}).GetResourceVersion())+1000, 10)
		for name, test := range map[string]struct {
			query  string
			code   int
			reason metav1.StatusReason
		}{
			"not a number":                     {"resourceVersion=abc", http.StatusBadRequest, metav1.StatusReasonBadRequest},
			"negative":                         {"resourceVersion=-1", http.StatusBadRequest, metav1.StatusReasonBadRequest},
			"match without a version":          {"resourceVersionMatch=Exact", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
			"exactly any":                      {"resourceVersion=0&resourceVersionMatch=Exact", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
			"unknown match":                    {"resourceVersion=1&resourceVersionMatch=Newest", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
			"match and continue":               {"resourceVersion=1&resourceVersionMatch=NotOlderThan&continue=x", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
			"continue that nobody gave":        {"continue=x", http.StatusBadRequest, metav1.StatusReasonBadRequest},
			"initial events of a list":         {"sendInitialEvents=true", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
			"not older than the future":        {"resourceVersionMatch=NotOlderThan&resourceVersion=" + future, http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
			"exactly the future":               {"resourceVersionMatch=Exact&resourceVersion=" + future, http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
			"the future":                       {"resourceVersion=" + future, http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
			"watch from what is not a number":  {"watch=true&resourceVersion=abc", http.StatusBadRequest, metav1.StatusReasonBadRequest},
			"watch with a match":               {"watch=true&resourceVersion=1&resourceVersionMatch=NotOlderThan", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
			"watch-list without a match":       {"watch=true&sendInitialEvents=true&allowWatchBookmarks=true", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
			"watch-list of exactly one moment": {"watch=true&sendInitialEvents=true&resourceVersion=1&resourceVersionMatch=Exact", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
		} {
			for _, scope := range bothScopes {
				query, err := url.ParseQuery(test.query)
				if err != nil {
					t.Fatal(err)
				}
				answer := r.server.do(t, http.MethodGet, r.path(scope), query, "")
				if answer.code != test.code {
					t.Errorf("%s, namespace %q: %d, want %d: %.300s", name, scope, answer.code, test.code, answer.body)
				} else if status := answer.status(t); status.Reason != test.reason {
					t.Errorf("%s, namespace %q: reason %q, want %q", name, scope, status.Reason, test.reason)
				} else if test.code == http.StatusGatewayTimeout && !hasCause(status, metav1.CauseTypeResourceVersionTooLarge) {
					t.Errorf("%s, namespace %q: clients cannot see why: %+v", name, scope, status)
				}
			}
		}
		for name, test := range map[string]struct {
			resourceVersion string
			code            int
		}{
			"any":          {"0", http.StatusOK},
			"an older one": {"1", http.StatusOK},
			"the future":   {future, http.StatusGatewayTimeout},
			"not a number": {"abc", http.StatusBadRequest},
		} {
			answer := r.server.do(t, http.MethodGet, r.path("a")+"/one", url.Values{"resourceVersion": {test.resourceVersion}}, "")
			if answer.code != test.code {
				t.Errorf("get at %s: %d, want %d: %.300s", name, answer.code, test.code, answer.body)
			}
		}
	})
}

func hasCause(status metav1.Status, want metav1.CauseType) bool {
	return status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == want })
}

// F15, F16: the resourceVersion of a list, also of an empty one, is where a watch
// goes on, without a repetition and without a gap.
func TestListThenWatch(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		for _, filled := range []bool{false, true} {
			for _, scope := range bothScopes {
				list := r.list(t, scope, metav1.ListOptions{})
				if got := len(list.Items) > 0; got != filled {
					t.Fatalf("%d objects", len(list.Items))
				}
				if revision(t, list.GetResourceVersion()) == 0 {
					t.Errorf("resourceVersion of a list is %q", list.GetResourceVersion())
				}
				w := r.server.watch(t, r.path(scope), watchQuery("resourceVersion="+list.GetResourceVersion()))
				w.expect(t, is(watch.Added, r.create(t, r.object("a", "next"))))
				r.delete(t, "a", "next")
				w.close()
			}
			if !filled {
				r.create(t, r.object("a", "one"))
			}
		}
	})
}

// F15: a list and the watch from its resourceVersion are the truth together,
// whatever is written meanwhile.
func TestListAndWatchWhileAWriterRuns(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		const rounds = 15
		var writer sync.WaitGroup
		defer writer.Wait()
		writer.Go(func() { r.createMany(t, "a", "w", 4*rounds) })
		for range rounds {
			list := r.list(t, "a", metav1.ListOptions{})
			seen := versions(list)
			last := r.create(t, r.object("a", "end-"+list.GetResourceVersion()))
			w := r.server.watch(t, r.path("a"), watchQuery("resourceVersion="+list.GetResourceVersion()))
			for {
				event := w.next(t)
				name := "a/" + event.Object.GetName()
				if _, again := seen[name]; again || event.Type != watch.Added {
					t.Errorf("%s comes after the list that has %s", event, name)
				}
				seen[name] = event.Object.GetResourceVersion()
				if event.Object.GetName() == last.GetName() {
					break
				}
			}
			w.close()
			truth := r.list(t, "a", metav1.ListOptions{ResourceVersion: last.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
			if want := versions(truth); !maps.Equal(seen, want) {
				t.Fatalf("list and watch have %d objects, the server has %d at %s", len(seen), len(want), last.GetResourceVersion())
			}
		}
	})
}

// Pages are one list, at the resourceVersion of the first, and say exactly how
// much is left.
func TestPagesAreOneList(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		const n, limit = 23, 5
		r.createMany(t, "a", "o", n)
		r.create(t, r.object("ab", "other"))
		for scope, total := range map[string]int{"a": n, "": n + 1} {
			whole := r.list(t, scope, metav1.ListOptions{})
			pages := map[string]string{}
			token := ""
			for page := 0; ; page++ {
				list := r.list(t, scope, metav1.ListOptions{Limit: limit, Continue: token})
				if list.GetResourceVersion() != whole.GetResourceVersion() {
					t.Errorf("page %d has resourceVersion %s, the first %s", page, list.GetResourceVersion(), whole.GetResourceVersion())
				}
				for name, version := range versions(list) {
					if _, twice := pages[name]; twice {
						t.Errorf("%s is on two pages", name)
					}
					pages[name] = version
				}
				token = list.GetContinue()
				remaining := list.GetRemainingItemCount()
				if token == "" {
					if remaining != nil {
						t.Errorf("the last page says that %d are left", *remaining)
					}
					break
				}
				if remaining == nil || int(*remaining) != total-len(pages) || len(list.Items) != limit {
					t.Errorf("page %d: %d objects, %v left, want %d and %d", page, len(list.Items), remaining, limit, total-len(pages))
				}
				// The rest must not see what a writer does between the pages.
				r.create(t, r.object("a", fmt.Sprintf("a-%d", page)))
				r.label(t, "a", fmt.Sprintf("o-%d", n-1), fmt.Sprintf("page-%s-%d", scope, page))
				r.delete(t, "a", fmt.Sprintf("a-%d", page))
			}
			if want := versions(whole); !maps.Equal(pages, want) {
				t.Errorf("pages have %v, the list had %v", pages, want)
			}
			selected := r.list(t, scope, metav1.ListOptions{Limit: limit, FieldSelector: "metadata.name!=other"})
			if selected.GetContinue() == "" || selected.GetRemainingItemCount() != nil || len(selected.Items) != limit {
				t.Errorf("with a selector: %d objects, continue %q, %v left, want %d and no count", len(selected.Items), selected.GetContinue(), selected.GetRemainingItemCount(), limit)
			}
		}
	})
}

// A continue token from before a compaction gives 410 with a token that ends the
// list all the same, from the same key on.
func TestExpiredContinueTokenFinishesTheList(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		r.createMany(t, "a", "o", 9)
		for _, scope := range bothScopes {
			first := r.list(t, scope, metav1.ListOptions{Limit: 4})
			changed := r.label(t, "a", "o-8", "in-namespace-"+cmp.Or(scope, "all"))
			r.compact(t, changed.GetResourceVersion())

			_, err := r.in(scope).List(t.Context(), metav1.ListOptions{Limit: 4, Continue: first.GetContinue()})
			if !apierrors.IsResourceExpired(err) {
				t.Fatalf("got %v, want 410 Expired", err)
			}
			status := err.(apierrors.APIStatus).Status()
			if status.Code != http.StatusGone || status.Continue == "" {
				t.Fatalf("got %+v, want 410 with a continue token", status)
			}
			all := versions(first)
			for token := status.Continue; token != ""; {
				page := r.list(t, scope, metav1.ListOptions{Limit: 4, Continue: token})
				if page.GetResourceVersion() == first.GetResourceVersion() {
					t.Errorf("an inconsistent page claims the resourceVersion of the first")
				}
				for name, version := range versions(page) {
					if _, twice := all[name]; twice {
						t.Errorf("%s comes twice", name)
					}
					all[name] = version
				}
				token = page.GetContinue()
			}
			want := versions(r.list(t, scope, metav1.ListOptions{}))
			if !maps.Equal(all, want) {
				t.Errorf("pages have %v, want %v", all, want)
			}

			if _, err := r.in(scope).List(t.Context(), metav1.ListOptions{
				ResourceVersion: first.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			}); !apierrors.IsResourceExpired(err) {
				t.Errorf("an exact list of what is compacted: %v, want 410 Expired", err)
			}
			if exact := r.list(t, scope, metav1.ListOptions{
				ResourceVersion: changed.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			}); len(exact.Items) != 9 {
				t.Errorf("what was compacted up to cannot be read any more: %d objects", len(exact.Items))
			}
		}
	})
}

// F21: the namespaces partition the whole, and what a list shows is what the
// other verbs find there.
func TestNamespacesPartitionTheWhole(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		for _, namespace := range testNamespaces {
			for _, name := range []string{"b", "b-c", "b.c", "bc"} {
				r.create(t, r.object(namespace, name))
			}
		}
		whole := map[string]string{}
		for _, namespace := range testNamespaces {
			list := r.list(t, namespace, metav1.ListOptions{})
			if len(list.Items) != 4 {
				t.Errorf("namespace %s has %d objects, want 4", namespace, len(list.Items))
			}
			for _, item := range list.Items {
				if item.GetNamespace() != namespace {
					t.Errorf("namespace %s lists %s/%s", namespace, item.GetNamespace(), item.GetName())
				}
			}
			maps.Copy(whole, versions(list))
			one := r.list(t, namespace, metav1.ListOptions{FieldSelector: "metadata.name=b"})
			if len(one.Items) != 1 || one.Items[0].GetName() != "b" || one.Items[0].GetNamespace() != namespace {
				t.Errorf("b of %s: %v", namespace, versions(one))
			}
		}
		if got := versions(r.list(t, "", metav1.ListOptions{})); !maps.Equal(got, whole) {
			t.Errorf("all namespaces: %v, want %v", got, whole)
		}
		if got := r.list(t, "", metav1.ListOptions{FieldSelector: "metadata.namespace=a-b"}); len(got.Items) != 4 {
			t.Errorf("metadata.namespace=a-b: %v", versions(got))
		}
		if got := r.list(t, "", metav1.ListOptions{FieldSelector: "metadata.name=b"}); len(got.Items) != len(testNamespaces) {
			t.Errorf("metadata.name=b in all namespaces: %v", versions(got))
		}
		if got := r.list(t, "none", metav1.ListOptions{}); len(got.Items) != 0 {
			t.Errorf("a namespace without objects: %v", versions(got))
		}
		if _, err := r.in("a.b").Create(t.Context(), r.object("a.b", "b"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("a.b is the name of no namespace: %v", err)
		}

		r.delete(t, "a", "b")
		if err := r.in("a").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		for namespace, want := range map[string]int{"a": 0, "ab": 4, "a-b": 4, "": 8} {
			if got := r.list(t, namespace, metav1.ListOptions{}); len(got.Items) != want {
				t.Errorf("namespace %q after a was emptied: %v", namespace, versions(got))
			}
		}
	})
}

// F52: an item of a list is the object, the whole object.
func TestListItemEqualsGet(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		obj := r.labelled("a", "one", map[string]string{"l": "v"})
		obj.SetAnnotations(map[string]string{"a": "v"})
		obj.SetFinalizers([]string{"example.com/hold"})
		created := r.create(t, obj)
		got, err := r.in("a").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w := r.server.watch(t, r.path("a"), watchQuery())
		for name, other := range map[string]*unstructured.Unstructured{
			"create":         created,
			"list":           &r.list(t, "a", metav1.ListOptions{}).Items[0],
			"list of all":    &r.list(t, "", metav1.ListOptions{}).Items[0],
			"list of a page": &r.list(t, "", metav1.ListOptions{Limit: 1}).Items[0],
			"watch":          w.next(t).Object,
		} {
			if !apiequality.Semantic.DeepEqual(got, other) {
				t.Errorf("%s has %v, get has %v", name, other, got)
			}
		}
		if spec, _, _ := unstructured.NestedMap(got.Object, "spec"); len(spec) < len(r.spec) {
			t.Errorf("spec is %v", spec)
		}
	})
}
