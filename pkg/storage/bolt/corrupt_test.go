// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// damageAtRest changes some bytes of a closed file, all occurrences of them.
func damageAtRest(t *testing.T, path, old, changed string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content, []byte(old)) || len(old) != len(changed) {
		t.Fatalf("cannot put %q in the place of %q", changed, old)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(content, []byte(old), []byte(changed)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withBrokenObject is a store of 100 objects of which "42" is not what was
// written, reopened.
func withBrokenObject(t *testing.T) (*DB, *store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, s := reopen(t, path)
	for i := range 100 {
		name, out := fmt.Sprint(i), &example.Pod{}
		p := pod(name)
		p.Labels = map[string]string{"l": fmt.Sprintf("value-%03d", i)}
		if err := s.Create(t.Context(), podKey(name), p, out, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	damageAtRest(t, path, "value-042", "value-043")
	db, s = reopen(t, path)
	return db, s, path
}

func listing(ctx context.Context, s storage.Interface, opts storage.ListOptions) error {
	opts.Recursive, opts.Predicate = true, storage.Everything
	return s.GetList(ctx, "/pods/", opts, &example.PodList{})
}

// mustNameBroken fails unless err is what upstream answers to a list: 500
// StoreReadError, which names the object and the reason.
func mustNameBroken(t *testing.T, what string, err error, keys ...string) {
	t.Helper()
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Reason != metav1.StatusReasonStoreReadError || status.ErrStatus.Code != 500 {
		t.Errorf("%s: %v, want StoreReadError", what, err)
		return
	}
	var named []string
	for _, cause := range status.ErrStatus.Details.Causes {
		named = append(named, cause.Field)
		if !strings.Contains(cause.Message, string(altered)) {
			t.Errorf("%s: the cause is %q, want that %s", what, cause.Message, altered)
		}
	}
	if fmt.Sprint(named) != fmt.Sprint(keys) {
		t.Errorf("%s names %v, want %v", what, named, keys)
	}
}

func unsafely() storage.DeleteOptions {
	return storage.DeleteOptions{ExpectTransformOrDecodeError: true}
}

func remove(ctx context.Context, s storage.Interface, name string, opts storage.DeleteOptions) error {
	return s.Delete(ctx, podKey(name), &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, opts)
}

// F75: one object of 100 is broken. All others can be read and written one by
// one, and a list says which one it is.
func TestBrokenObjectIsNamed(t *testing.T) {
	_, s, _ := withBrokenObject(t)
	for i := range 100 {
		name := fmt.Sprint(i)
		err := s.Get(t.Context(), podKey(name), storage.GetOptions{}, &example.Pod{})
		if name == "42" && !storage.IsCorruptObject(err) || name != "42" && err != nil {
			t.Errorf("Get of %s: %v", name, err)
		}
	}
	mustNameBroken(t, "list", listing(t.Context(), s, storage.ListOptions{}), podKey("42"))
	mustNameBroken(t, "exact list", listing(t.Context(), s, exactly("100")), podKey("42"))
	if err := listing(t.Context(), s, exactly("20")); err != nil {
		t.Errorf("exact list of a revision before it: %v", err)
	}
	page := mustList(t, s, storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: 5}})
	if len(page.Items) != 5 || *page.RemainingItemCount != 95 {
		t.Errorf("a page without it: %d items, %d remain", len(page.Items), *page.RemainingItemCount)
	}
	initial := startWatch(t, s, storage.ListOptions{})
	for e := range initial.ResultChan() {
		if p := sentPod(e); p != nil && p.Name < "42" {
			continue
		}
		if status, ok := e.Object.(*metav1.Status); !ok || status.Code != 500 {
			t.Errorf("initial events go on with %s %v, want an error", e.Type, e.Object)
		}
	}
	mustLabel(t, s, "41", "still writable")
}

// Nothing but an unsafe deletion touches a broken object: neither an update that
// would hide what happened, nor a create, nor an ordinary deletion.
func TestBrokenObjectStays(t *testing.T) {
	_, s, _ := withBrokenObject(t)
	validated := errors.New("not valid")
	for what, test := range map[string]struct {
		err  error
		want func(error) bool
	}{
		"update": {s.GuaranteedUpdate(t.Context(), podKey("42"), &example.Pod{}, true, nil, labelled("x"), nil), storage.IsCorruptObject},
		"delete": {remove(t.Context(), s, "42", storage.DeleteOptions{}), storage.IsCorruptObject},
		"create": {s.Create(t.Context(), podKey("42"), pod("42"), nil, 0), storage.IsExist},
		"an unsafe deletion that validation refuses, as a dry run does": {
			s.Delete(t.Context(), podKey("42"), &example.Pod{}, nil, func(context.Context, runtime.Object) error { return validated }, nil, unsafely()),
			func(err error) bool { return errors.Is(err, validated) },
		},
		"an unsafe deletion of a good object":     {remove(t.Context(), s, "41", unsafely()), storage.IsInvalidObj},
		"an unsafe deletion of what is not there": {remove(t.Context(), s, "none", unsafely()), storage.IsNotFound},
	} {
		if !test.want(test.err) {
			t.Errorf("%s: %v", what, test.err)
		}
	}
	mustNameBroken(t, "list", listing(t.Context(), s, storage.ListOptions{}), podKey("42"))
	if rev := s.resource.feed.revision(); rev != 101 {
		t.Errorf("revision %d, want 101: nothing was written", rev)
	}
}

// Unsafe deletion takes it away, and everything else works again.
func TestBrokenObjectCanBeDeleted(t *testing.T) {
	db, s, path := withBrokenObject(t)
	w := startWatch(t, s, storage.ListOptions{ResourceVersion: "101"})
	if err := remove(t.Context(), s, "42", unsafely()); err != nil {
		t.Fatal(err)
	}
	e, last := <-w.ResultChan(), watch.Event{}
	if status, ok := e.Object.(*metav1.Status); e.Type != watch.Error || !ok || status.Reason != metav1.StatusReasonStoreReadError {
		t.Errorf("the watch got %s %v, want an error with StoreReadError", e.Type, e.Object)
	}
	if last = <-w.ResultChan(); last.Type != "" {
		t.Errorf("after the error came %v", last)
	}

	verify := func(s *store) {
		t.Helper()
		list := mustList(t, s, storage.ListOptions{})
		if len(list.Items) != 99 || list.ResourceVersion != "102" {
			t.Errorf("%d objects left at %s, want 99 at 102", len(list.Items), list.ResourceVersion)
		}
		if stats, _ := s.Stats(t.Context()); stats.ObjectCount != 99 {
			t.Errorf("%d objects counted, want 99", stats.ObjectCount)
		}
		if err := s.Get(t.Context(), podKey("42"), storage.GetOptions{}, &example.Pod{}); !storage.IsNotFound(err) {
			t.Errorf("Get: %v, want not found", err)
		}
		// At a revision at which it was there, it is still broken, not missing.
		mustNameBroken(t, "exact list", listing(t.Context(), s, exactly("101")), podKey("42"))
	}
	verify(s)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, s = reopen(t, path)
	verify(s)

	w = startWatch(t, s, storage.ListOptions{ResourceVersion: "102"})
	again := mustCreate(t, s, "42")
	expect(t, w, watch.Added, again)
	if list := mustList(t, s, storage.ListOptions{}); len(list.Items) != 100 {
		t.Errorf("%d objects, want 100", len(list.Items))
	}
	if err := db.Compact(t.Context(), pods, 102); err != nil {
		t.Fatal(err)
	}
	if list := mustList(t, s, exactly("102")); len(list.Items) != 99 {
		t.Errorf("%d objects at 102, want 99", len(list.Items))
	}
	check(t, db)
}

// The way an operator goes: kubectl delete with
// ignoreStoreReadErrorWithClusterBreakingPotential ends in this deleter.
func TestBrokenObjectThroughTheRegistry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	r := newRegistry(t, NewRESTOptionsGetter(db, testCodec(), "/registry"))
	ctx := genericapirequest.WithNamespace(t.Context(), "ns")
	for _, name := range []string{"good", "bad"} {
		p := pod(name)
		p.Labels = map[string]string{"l": name + "-value"}
		if _, err := r.Create(ctx, p, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	damageAtRest(t, path, "bad-value", "bad-valve")
	db = openDB(t, Config{Path: path})
	r = newRegistry(t, NewRESTOptionsGetter(db, testCodec(), "/registry"))

	// As upstream: 500 that says why, of one object InternalError.
	unreadable := func(what string, err error) {
		t.Helper()
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), string(altered)) {
			t.Errorf("%s: %v, want an InternalError", what, err)
		}
	}
	_, err = r.Get(ctx, "bad", &metav1.GetOptions{})
	unreadable("get", err)
	_, err = r.List(ctx, nil)
	mustNameBroken(t, "list", err, "/registry/example.dev/widgets/ns/bad")
	_, _, err = r.Delete(ctx, "bad", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	unreadable("delete", err)
	_, _, err = r.Update(ctx, "bad", rest.DefaultUpdatedObjectInfo(pod("bad")), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	unreadable("update", err)

	deleter := genericregistry.NewCorruptObjectDeleter(r)
	options := &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true), DryRun: []string{metav1.DryRunAll}}
	if _, _, err := deleter.Delete(ctx, "bad", rest.ValidateAllObjectFunc, options); err != nil {
		t.Errorf("dry run: %v", err)
	}
	_, err = r.Get(ctx, "bad", &metav1.GetOptions{})
	unreadable("get after the dry run", err)
	options.DryRun = nil
	if _, _, err := deleter.Delete(ctx, "good", rest.ValidateAllObjectFunc, options); err == nil {
		t.Error("a good object was deleted unsafely")
	}
	if _, _, err := deleter.Delete(ctx, "bad", rest.ValidateAllObjectFunc, options); err != nil {
		t.Errorf("unsafe deletion: %v", err)
	}
	list, err := r.List(ctx, nil)
	if err != nil || len(list.(*example.PodList).Items) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
}

// Without the feature gate there is no unsafe deletion to point at: the file is
// what has to be restored, 503.
func TestBrokenObjectWithoutUnsafeDeletion(t *testing.T) {
	unsafeDeletion(t, false)
	_, s, _ := withBrokenObject(t)
	for what, err := range map[string]error{
		"get":    s.Get(t.Context(), podKey("42"), storage.GetOptions{}, &example.Pod{}),
		"list":   listing(t.Context(), s, storage.ListOptions{}),
		"update": s.GuaranteedUpdate(t.Context(), podKey("42"), &example.Pod{}, true, nil, labelled("x"), nil),
		"delete": remove(t.Context(), s, "42", unsafely()),
	} {
		var corrupt *CorruptFileError
		if !errors.As(err, &corrupt) || corrupt.Status().Code != 503 {
			t.Errorf("%s: %v, want a CorruptFileError, 503", what, err)
		}
	}
	if err := s.Get(t.Context(), podKey("41"), storage.GetOptions{}, &example.Pod{}); err != nil {
		t.Errorf("get of a good one: %v", err)
	}
}

// A broken object whose time to live is over goes like any other.
func TestBrokenObjectExpires(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, s := reopen(t, path)
	p := pod("short")
	p.Labels = map[string]string{"l": "short-value"}
	if err := s.Create(t.Context(), podKey("short"), p, nil, 1); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	damageAtRest(t, path, "short-value", "short-valve")
	_, s = reopen(t, path)
	w := startWatch(t, s, storage.ListOptions{ResourceVersion: "2"})
	if e := <-w.ResultChan(); e.Type != watch.Error || e.Object.(*metav1.Status).Reason != metav1.StatusReasonStoreReadError {
		t.Errorf("got %s %v, want the deletion of something unreadable", e.Type, e.Object)
	}
	if list := mustList(t, s, storage.ListOptions{}); len(list.Items) != 0 {
		t.Errorf("left: %v", list.Items)
	}
}

// A broken record of the history is reported where it is needed, keeps nobody
// from the present, and goes with the compaction.
func TestBrokenHistoryRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, s := reopen(t, path)
	mustCreate(t, s, "a")
	mustLabel(t, s, "a", "replaced-value")  // 3
	mustLabel(t, s, "a", "current-value")   // 4: its record has the replaced value
	b := mustLabelled(t, s, "b", "another") // 6
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	damageAtRest(t, path, "replaced-value", "replaced-valve")

	db, s = reopen(t, path)
	if list := mustList(t, s, storage.ListOptions{}); len(list.Items) != 2 {
		t.Errorf("the present: %v", list.Items)
	}
	var corrupt *CorruptFileError
	if err := listing(t.Context(), s, exactly("3")); !errors.As(err, &corrupt) {
		t.Errorf("exact list that needs it: %v, want a CorruptFileError", err)
	}
	if list := mustList(t, s, exactly("5")); len(list.Items) != 2 {
		t.Errorf("exact list that does not need it: %v", list.Items)
	}
	for _, rv := range []string{"2", "3"} {
		w := startWatch(t, s, storage.ListOptions{ResourceVersion: rv})
		if e := <-w.ResultChan(); e.Type != watch.Error || e.Object.(*metav1.Status).Code != 503 {
			t.Errorf("watch from %s that needs it: %s %v", rv, e.Type, e.Object)
		}
	}
	expect(t, startWatch(t, s, storage.ListOptions{ResourceVersion: "5"}), watch.Modified, b)

	if err := db.Compact(t.Context(), pods, 4); err != nil {
		t.Fatal(err)
	}
	e := <-startWatch(t, s, storage.ListOptions{ResourceVersion: "3"}).ResultChan()
	if status, ok := e.Object.(*metav1.Status); !ok || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("watch from before the compaction: %s %v, want Expired", e.Type, e.Object)
	}
	if list := mustList(t, s, exactly("4")); len(list.Items) != 1 || list.Items[0].Labels["l"] != "current-value" {
		t.Errorf("exact list of the compacted revision: %v", list.Items)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, s = reopen(t, path)
	mustCreate(t, s, "c")
}

// mustLabelled creates an object and labels it.
func mustLabelled(t *testing.T, s *store, name, value string) *example.Pod {
	t.Helper()
	mustCreate(t, s, name)
	return mustLabel(t, s, name, value)
}
