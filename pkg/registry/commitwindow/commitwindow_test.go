// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitwindow

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// log is a Table that is written by the test: the windows, and what happened to
// them, revision after revision from 100 on. The real one is pkg/branch's.
type log struct {
	mu     sync.Mutex
	open   map[string]*v1alpha1.CommitWindow
	events []watch.Event // the first one has revision 101
	next   chan struct{}
}

var _ Table = (*log)(nil)

func newLog() *log { return &log{open: map[string]*v1alpha1.CommitWindow{}, next: make(chan struct{})} }

func (l *log) add(kind watch.EventType, namespace, name, author string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &v1alpha1.CommitWindow{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: strconv.Itoa(101 + len(l.events))},
		Status: v1alpha1.CommitWindowStatus{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"}, AuthorKind: v1alpha1.AuthorUser, Author: author,
		},
	}
	l.open[namespace+"/"+name] = w
	if kind == watch.Deleted {
		delete(l.open, namespace+"/"+name)
	}
	l.events = append(l.events, watch.Event{Type: kind, Object: w})
	close(l.next)
	l.next = make(chan struct{})
}

func (l *log) Windows(namespace string) ([]v1alpha1.CommitWindow, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var open []v1alpha1.CommitWindow
	for _, w := range l.open {
		if namespace == "" || w.Namespace == namespace {
			open = append(open, *w)
		}
	}
	slices.SortFunc(open, func(a, b v1alpha1.CommitWindow) int { return len(a.Name) - len(b.Name) })
	return open, uint64(100 + len(l.events))
}

func (l *log) Window(namespace, name string) (*v1alpha1.CommitWindow, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.open[namespace+"/"+name]
	return w, ok
}

func (l *log) Since(namespace string, revision uint64) ([]watch.Event, uint64, <-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if revision < 100 || revision > uint64(100+len(l.events)) {
		return nil, 0, nil, false
	}
	var events []watch.Event
	for _, e := range l.events[revision-100:] {
		if namespace == "" || e.Object.(*v1alpha1.CommitWindow).Namespace == namespace {
			events = append(events, e)
		}
	}
	return events, uint64(100 + len(l.events)), l.next, true
}

func in(t *testing.T, namespace string) context.Context {
	return genericapirequest.WithNamespace(t.Context(), namespace)
}

func TestGet(t *testing.T) {
	l := newLog()
	l.add(watch.Added, "shop", "w1", "alice")
	r := NewREST(l)
	if obj, err := r.Get(in(t, "shop"), "w1", nil); err != nil || obj.(*v1alpha1.CommitWindow).Status.Author != "alice" {
		t.Errorf("got %v, %v", obj, err)
	}
	if _, err := r.Get(in(t, "other"), "w1", nil); !apierrors.IsNotFound(err) {
		t.Errorf("a window of another namespace: %v", err)
	}
}

func TestList(t *testing.T) {
	l := newLog()
	l.add(watch.Added, "shop", "w1", "alice")
	l.add(watch.Added, "shop", "w22", "bob")
	l.add(watch.Added, "other", "w333", "alice")
	r := NewREST(l)
	selects := func(selector string) *metainternalversion.ListOptions {
		return &metainternalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie(selector)}
	}
	for _, test := range []struct {
		name, namespace string
		options         *metainternalversion.ListOptions
		want            []string
		err             func(error) bool
	}{
		{name: "all", options: nil, want: []string{"w1", "w22", "w333"}},
		{name: "of a namespace", namespace: "shop", want: []string{"w1", "w22"}},
		{name: "none", namespace: "empty", want: []string{}},
		{name: "by author", options: selects("status.author=alice"), want: []string{"w1", "w333"}},
		{name: "by target and not author", options: selects("status.gitTargetRef.name=prod,status.author!=alice"), want: []string{"w22"}},
		{name: "by name", options: selects("metadata.name=w1"), want: []string{"w1"}},
		{name: "by namespace", options: selects("metadata.namespace=other"), want: []string{"w333"}},
		{name: "by a label that none has", options: &metainternalversion.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"a": "b"})}, want: []string{}},
		{name: "limit is not needed", options: &metainternalversion.ListOptions{Limit: 1}, want: []string{"w1", "w22", "w333"}},
		{name: "any version", options: &metainternalversion.ListOptions{ResourceVersion: "0"}, want: []string{"w1", "w22", "w333"}},
		{name: "not older", options: &metainternalversion.ListOptions{ResourceVersion: "102", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, want: []string{"w1", "w22", "w333"}},
		{name: "exactly now", options: &metainternalversion.ListOptions{ResourceVersion: "103", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, want: []string{"w1", "w22", "w333"}},
		{name: "exactly then", options: &metainternalversion.ListOptions{ResourceVersion: "102", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, err: apierrors.IsResourceExpired},
		{name: "the future", options: &metainternalversion.ListOptions{ResourceVersion: "104"}, err: storage.IsTooLargeResourceVersion},
		{name: "a page", options: &metainternalversion.ListOptions{Continue: "x"}, err: apierrors.IsResourceExpired},
		{name: "no version", options: &metainternalversion.ListOptions{ResourceVersion: "x"}, err: func(err error) bool { return err != nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			obj, err := r.List(in(t, test.namespace), test.options)
			if test.err != nil {
				if !test.err(err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			list := obj.(*v1alpha1.CommitWindowList)
			got := []string{}
			for _, w := range list.Items {
				got = append(got, w.Name)
			}
			if !slices.Equal(got, test.want) || list.ResourceVersion != "103" || list.Items == nil {
				t.Errorf("got %q at %s, want %q at 103", got, list.ResourceVersion, test.want)
			}
		})
	}
}

// drain returns what a watch has sent by now, as "TYPE name@resourceVersion".
func drain(t *testing.T, w watch.Interface) []string {
	t.Helper()
	synctest.Wait()
	got := []string{}
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return append(got, "closed")
			}
			switch obj := e.Object.(type) {
			case *v1alpha1.CommitWindow:
				entry := fmt.Sprintf("%s %s@%s", e.Type, obj.Name, obj.ResourceVersion)
				if obj.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
					entry += " end"
				}
				got = append(got, entry)
			case *metav1.Status:
				got = append(got, fmt.Sprintf("%s %d %s", e.Type, obj.Code, obj.Reason))
			}
			synctest.Wait()
		default:
			return got
		}
	}
}

func TestWatch(t *testing.T) {
	initial := func(b bool) *bool { return &b }
	for _, test := range []struct {
		name, namespace string
		options         metainternalversion.ListOptions
		first, then     []string
	}{
		{name: "from now: what is open comes first", first: []string{"ADDED w1@101", "ADDED w22@102"}, then: []string{"MODIFIED w1@103", "DELETED w1@104", "ADDED w333@105"}},
		{name: "from 0: the same", options: metainternalversion.ListOptions{ResourceVersion: "0"}, first: []string{"ADDED w1@101", "ADDED w22@102"}, then: []string{"MODIFIED w1@103", "DELETED w1@104", "ADDED w333@105"}},
		{name: "from a list: nothing comes twice", options: metainternalversion.ListOptions{ResourceVersion: "102"}, first: []string{}, then: []string{"MODIFIED w1@103", "DELETED w1@104", "ADDED w333@105"}},
		{name: "resumed", options: metainternalversion.ListOptions{ResourceVersion: "101"}, first: []string{"ADDED w22@102"}, then: []string{"MODIFIED w1@103", "DELETED w1@104", "ADDED w333@105"}},
		{name: "watch-list", options: metainternalversion.ListOptions{SendInitialEvents: initial(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
			first: []string{"ADDED w1@101", "ADDED w22@102", "BOOKMARK @102 end"}, then: []string{"MODIFIED w1@103", "DELETED w1@104", "ADDED w333@105"}},
		{name: "without initial events", options: metainternalversion.ListOptions{SendInitialEvents: initial(false)}, first: []string{}, then: []string{"MODIFIED w1@103", "DELETED w1@104", "ADDED w333@105"}},
		{name: "one author's", options: metainternalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie("status.author=bob")}, first: []string{"ADDED w22@102"}, then: []string{"ADDED w333@105"}},
		{name: "one namespace's", namespace: "other", first: []string{}, then: []string{"ADDED w333@105"}},
		{name: "of an earlier process", options: metainternalversion.ListOptions{ResourceVersion: "99"}, first: []string{"ERROR 410 Expired", "closed"}, then: []string{"closed"}},
		{name: "of the future", options: metainternalversion.ListOptions{ResourceVersion: "900"}, first: []string{"ERROR 410 Expired", "closed"}, then: []string{"closed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog()
				l.add(watch.Added, "shop", "w1", "alice")
				l.add(watch.Added, "shop", "w22", "bob")
				w, err := NewREST(l).Watch(in(t, test.namespace), &test.options)
				if err != nil {
					t.Fatal(err)
				}
				if got := drain(t, w); !slices.Equal(got, test.first) {
					t.Errorf("at first got %q, want %q", got, test.first)
				}
				l.add(watch.Modified, "shop", "w1", "alice")
				l.add(watch.Deleted, "shop", "w1", "alice")
				l.add(watch.Added, "other", "w333", "bob")
				if got := drain(t, w); !slices.Equal(got, test.then) {
					t.Errorf("then got %q, want %q", got, test.then)
				}
				w.Stop()
				if got := drain(t, w); !slices.Equal(got, []string{"closed"}) {
					t.Errorf("after Stop got %q", got)
				}
			})
		})
	}
}

func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		with, err := NewREST(l).Watch(in(t, "shop"), &metainternalversion.ListOptions{AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		without, err := NewREST(l).Watch(in(t, "shop"), nil)
		if err != nil {
			t.Fatal(err)
		}
		// What happens elsewhere moves the bookmark on.
		l.add(watch.Added, "other", "w1", "alice")
		time.Sleep(bookmarkInterval + time.Second)
		if got, want := drain(t, with), []string{"BOOKMARK @101"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := drain(t, without); len(got) != 0 {
			t.Errorf("nobody asked for bookmarks, got %q", got)
		}
		with.Stop()
		without.Stop()
	})
}

// A watcher that does not read holds up nobody, and ends with its request.
func TestWatcherThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		ctx, cancel := context.WithCancel(in(t, ""))
		w, err := NewREST(l).Watch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 * watchBuffer {
			l.add(watch.Added, "shop", fmt.Sprint(i), "alice")
		}
		cancel()
		synctest.Wait()
		sent := 0
		for range w.ResultChan() {
			sent++
		}
		if sent > watchBuffer+1 {
			t.Errorf("%d events after the end", sent)
		}
	})
}

func TestTable(t *testing.T) {
	window := &v1alpha1.CommitWindow{
		ObjectMeta: metav1.ObjectMeta{Name: "w1"},
		Status: v1alpha1.CommitWindowStatus{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"}, AuthorKind: v1alpha1.AuthorUser, Author: "alice",
			CommitRequestRef: &v1alpha1.LocalObjectReference{Name: "save"}, ChangeCount: 5,
		},
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		window.Status.Changes = append(window.Status.Changes, v1alpha1.WindowChange{Operation: "update", Group: "apps", Resource: "deployments", Name: name})
	}
	cells := func() map[string]any {
		table, err := NewREST(newLog()).ConvertToTable(t.Context(), window, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		for i, c := range table.ColumnDefinitions {
			got[c.Name] = table.Rows[0].Cells[i]
		}
		return got
	}
	got := cells()
	for column, want := range map[string]string{
		"Name": "w1", "Target": "prod", "Author": "alice", "Changes": "5", "Request": "save", "Closes": "",
		"Changed": "update deployments.apps/a, update deployments.apps/b, update deployments.apps/c, +2",
	} {
		if got[column] != want {
			t.Errorf("%s is %q, want %q", column, got[column], want)
		}
	}
	for kind, want := range map[v1alpha1.AuthorKind]string{v1alpha1.AuthorUnresolved: "<unresolved>", v1alpha1.AuthorShared: "<shared>"} {
		window.Status.Author, window.Status.AuthorKind = "", kind
		if got := cells()["Author"]; got != want {
			t.Errorf("the author of an %s window is shown as %q, want %q", kind, got, want)
		}
	}
}
