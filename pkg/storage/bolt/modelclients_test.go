// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"pgregory.net/rapid"
)

// modelWatcher is a client that watches, with a selector or not, and goes on at
// its cursor after a restart.
type modelWatcher struct {
	w      watch.Interface
	label  string
	cursor int // the newest revision it was sent, or started at
	seen   int // no event up to here is still to come
}

// modelPage is a client in the middle of a paged list.
type modelPage struct {
	rev   int // of the list
	after string
	token string
}

// reconnect is what clients do: each watch goes on where it was.
func (m *machine) reconnect(t *rapid.T) {
	for _, r := range m.resources {
		for _, w := range r.watchers {
			w.connect(m.ctx, t, r)
		}
	}
}

// Watch starts one at a random revision.
func (m *machine) Watch(t *rapid.T) {
	r := m.resource(t)
	if len(r.watchers) >= 4 {
		r.watchers[0].w.Stop()
		r.watchers = r.watchers[1:]
	}
	w := &modelWatcher{
		cursor: rapid.IntRange(1, r.revision()).Draw(t, "from"),
		label:  rapid.SampledFrom([]string{"", "x"}).Draw(t, "selector"),
	}
	w.connect(m.ctx, t, r)
	r.watchers = append(r.watchers, w)
}

// connect goes on at the cursor.
func (w *modelWatcher) connect(ctx context.Context, t *rapid.T, r *modelled) {
	started, err := r.s.Watch(ctx, "/pods", storage.ListOptions{Recursive: true, ResourceVersion: fmt.Sprint(w.cursor), Predicate: selecting(w.label)})
	if err != nil {
		t.Fatal(err)
	}
	w.w, w.seen = started, w.cursor
}

// follow reads until w has seen everything. A watch whose history is gone by then
// may say so, and starts again at the present.
func (w *modelWatcher) follow(ctx context.Context, t *rapid.T, r *modelled) {
	for ; w.seen < r.revision(); w.seen++ {
		want, concerned := r.history(w.seen+1, w.label)
		if !concerned {
			continue
		}
		e := <-w.w.ResultChan()
		if w.expired(e, r) {
			w.cursor = r.revision()
			w.connect(ctx, t, r)
			return
		}
		if got := showEvent(e); got != want {
			t.Fatalf("watch of %q from %d: %s, want %s", w.label, w.cursor, got, want)
		}
		w.cursor = w.seen + 1
	}
	synctest.Wait()
	select {
	case e := <-w.w.ResultChan():
		if !w.expired(e, r) {
			t.Fatalf("watch of %q from %d: %s, want nothing", w.label, w.cursor, showEvent(e))
		}
		w.cursor = r.revision()
		w.connect(ctx, t, r)
	default:
	}
}

// expired reports whether e says that the history is gone, and rightly so.
func (w *modelWatcher) expired(e watch.Event, r *modelled) bool {
	status, ok := e.Object.(*metav1.Status)
	return ok && e.Type == watch.Error && status.Code == 410 && w.cursor < r.compacted
}

func selecting(label string) storage.SelectionPredicate {
	pred := storage.Everything
	if label != "" {
		pred = storage.SelectionPredicate{Label: labels.SelectorFromSet(labels.Set{"l": label}), Field: fields.Everything(), GetAttrs: storage.DefaultNamespaceScopedAttr}
	}
	return pred
}

func show(p *example.Pod) string {
	return fmt.Sprintf("%s %s@%s", p.Name, p.Labels["l"], p.ResourceVersion)
}

func showEvent(e watch.Event) string {
	obj := e.Object
	if shared, ok := obj.(runtime.CacheableObject); ok {
		obj = shared.GetObject()
	}
	p, ok := obj.(*example.Pod)
	if !ok {
		return fmt.Sprintf("%s %v", e.Type, obj)
	}
	return fmt.Sprintf("%s %s", e.Type, show(p))
}

// Page lists one page more, and starts again after the last one.
func (m *machine) Page(t *rapid.T) {
	r := m.resource(t)
	if r.page == nil {
		r.page = &modelPage{rev: r.revision()}
	}
	page := r.page
	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	opts.Predicate.Limit, opts.Predicate.Continue = rapid.Int64Range(1, 4).Draw(t, "limit"), page.token
	list := &example.PodList{}
	err := r.s.GetList(m.ctx, "/pods/", opts, list)
	if page.token != "" && page.rev < r.compacted {
		var expired *apierrors.StatusError
		if !apierrors.IsResourceExpired(err) || !errors.As(err, &expired) || expired.ErrStatus.Continue == "" {
			t.Fatalf("page at %d, compacted to %d: %v, want 410 with a token", page.rev, r.compacted, err)
		}
		// The token goes on at the same key, in the present.
		opts.Predicate.Continue, page.rev = expired.ErrStatus.Continue, r.revision()
		err = r.s.GetList(m.ctx, "/pods/", opts, list)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := r.list(page.rev, page.after, "")
	rest := int64(len(want)) - opts.Predicate.Limit
	if rest > 0 {
		want = want[:opts.Predicate.Limit]
	}
	if got := showList(list); !slices.Equal(got, want) || list.ResourceVersion != fmt.Sprint(page.rev) {
		t.Fatalf("page after %q: %v at %s, want %v at %d", page.after, got, list.ResourceVersion, want, page.rev)
	}
	if rest <= 0 {
		if list.Continue != "" || list.RemainingItemCount != nil {
			t.Fatalf("the last page says there is more")
		}
		r.page = nil
		return
	}
	if list.RemainingItemCount == nil || *list.RemainingItemCount != rest {
		t.Fatalf("remainingItemCount %v, want %d", list.RemainingItemCount, rest)
	}
	page.token, page.after = list.Continue, list.Items[len(list.Items)-1].Name
}

func showList(list *example.PodList) []string {
	got := []string{}
	for i := range list.Items {
		got = append(got, show(&list.Items[i]))
	}
	return got
}
