// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// F50: an update of what is gone, or of another object of the same name, neither
// brings it back nor touches its successor.
func TestUpdateOfADeletedObject(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		old := r.create(t, r.object("a", "one"))
		stale := r.label(t, "a", "one", "yes")
		r.delete(t, "a", "one")

		unversioned := old.DeepCopy()
		unversioned.SetResourceVersion("")
		anonymous := unversioned.DeepCopy()
		anonymous.SetUID("")
		attempts := map[string]*unstructured.Unstructured{
			"the old resourceVersion": old, "the last resourceVersion": stale, "no resourceVersion": unversioned,
		}
		for name, obj := range attempts {
			obj := obj.DeepCopy()
			obj.SetAnnotations(map[string]string{"late": name})
			for verb, update := range map[string]func() error{
				"update": func() error { _, err := r.in("a").Update(t.Context(), obj, metav1.UpdateOptions{}); return err },
				"status": func() error { _, err := r.in("a").UpdateStatus(t.Context(), obj, metav1.UpdateOptions{}); return err },
			} {
				if err := update(); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					t.Errorf("%s of a deleted object with %s: %v, want 404 or 409", verb, name, err)
				}
			}
		}
		if _, err := r.in("a").Update(t.Context(), anonymous, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("update of a deleted object without a uid: %v, want 404", err)
		}
		if _, err := r.in("a").Patch(t.Context(), "one", types.MergePatchType, []byte(`{"metadata":{"labels":{"l":"v"}}}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("patch of a deleted object: %v, want 404", err)
		}
		if list := r.list(t, "a", metav1.ListOptions{FieldSelector: "metadata.name=one"}); len(list.Items) != 0 {
			t.Fatalf("the deleted object is back: %v", versions(list))
		}

		again := r.create(t, r.object("a", "one"))
		for name, obj := range attempts {
			obj := obj.DeepCopy()
			obj.SetAnnotations(map[string]string{"late": name})
			if _, err := r.in("a").Update(t.Context(), obj, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("update with the uid of the predecessor and %s: %v, want 409", name, err)
			}
			if _, err := r.in("a").UpdateStatus(t.Context(), obj, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("status with the uid of the predecessor and %s: %v, want 409", name, err)
			}
		}
		if now, err := r.in("a").Get(t.Context(), "one", metav1.GetOptions{}); err != nil || now.GetResourceVersion() != again.GetResourceVersion() {
			t.Errorf("the successor was touched: %v, %v", now, err)
		}
	})
}

// F50: a delete that names a uid or a resourceVersion deletes that one only.
func TestDeletePreconditions(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		old := r.create(t, r.object("a", "one"))
		r.delete(t, "a", "one")
		created := r.create(t, r.object("a", "one"))
		now := r.label(t, "a", "one", "yes")
		uid := func(obj *unstructured.Unstructured) *types.UID { u := obj.GetUID(); return &u }
		version := func(obj *unstructured.Unstructured) *string { v := obj.GetResourceVersion(); return &v }
		for _, preconditions := range []metav1.Preconditions{
			{UID: uid(old)}, {ResourceVersion: version(created)}, {UID: uid(now), ResourceVersion: version(created)}, {UID: uid(old), ResourceVersion: version(now)},
		} {
			if err := r.in("a").Delete(t.Context(), "one", metav1.DeleteOptions{Preconditions: &preconditions}); !apierrors.IsConflict(err) {
				t.Errorf("delete of %+v: %v, want 409", preconditions, err)
			}
		}
		if err := r.in("a").Delete(t.Context(), "one", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("dry run: %v", err)
		}
		if got, err := r.in("a").Get(t.Context(), "one", metav1.GetOptions{}); err != nil || got.GetResourceVersion() != now.GetResourceVersion() {
			t.Fatalf("after the refused deletes: %v, %v", got, err)
		}
		if err := r.in("a").Delete(t.Context(), "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: uid(now), ResourceVersion: version(now)}}); err != nil {
			t.Errorf("delete of what is there: %v", err)
		}
		if err := r.in("a").Delete(t.Context(), "one", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("delete of what is gone: %v, want 404", err)
		}
	})
}

// F53: a name can be used again and again, by another object each time.
func TestSameNameManyTimes(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		const times = 20
		w := r.server.watch(t, r.path("a"), watchQuery("resourceVersion="+r.list(t, "a", metav1.ListOptions{}).GetResourceVersion()))
		seen := map[types.UID]bool{}
		for i := range times {
			created := r.create(t, r.object("a", "one"))
			if seen[created.GetUID()] || created.GetUID() == "" {
				t.Errorf("round %d: uid %q was there before", i, created.GetUID())
			}
			seen[created.GetUID()] = true
			if _, err := r.in("a").Create(t.Context(), r.object("a", "one"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("round %d: create again: %v, want 409 AlreadyExists", i, err)
			}
			r.delete(t, "a", "one")
			w.expect(t, is(watch.Added, created))
			if event := w.next(t); event.Type != watch.Deleted || event.Object.GetUID() != created.GetUID() {
				t.Errorf("round %d: got %s, want DELETED one", i, event)
			}
		}
		if list := r.list(t, "a", metav1.ListOptions{FieldSelector: "metadata.name=one"}); len(list.Items) != 0 {
			t.Errorf("left: %v", versions(list))
		}
	})
}

// F38: a write that changes nothing is none; generation counts changes of the
// spec and nothing else, whatever a client sends.
func TestResourceVersionAndGeneration(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		forged := r.object("a", "one")
		forged.SetGeneration(7)
		now := r.create(t, forged)
		if now.GetGeneration() != 1 {
			t.Errorf("generation of a new object is %d", now.GetGeneration())
		}
		update := func(change func(*unstructured.Unstructured)) func() (*unstructured.Unstructured, error) {
			return func() (*unstructured.Unstructured, error) {
				obj := now.DeepCopy()
				change(obj)
				return r.in("a").Update(t.Context(), obj, metav1.UpdateOptions{})
			}
		}
		for _, step := range []struct {
			name       string
			write      func() (*unstructured.Unstructured, error)
			changes    bool
			generation int64
		}{
			{"update with the same", update(func(*unstructured.Unstructured) {}), false, 0},
			{"update without a resourceVersion", update(func(obj *unstructured.Unstructured) { obj.SetResourceVersion("") }), false, 0},
			{"update with another generation", update(func(obj *unstructured.Unstructured) { obj.SetGeneration(9) }), false, 0},
			{"update with a status", update(func(obj *unstructured.Unstructured) {
				obj.Object["status"] = map[string]any{"observedGeneration": int64(9)}
			}), false, 0},
			{"empty patch", func() (*unstructured.Unstructured, error) {
				return r.in("a").Patch(t.Context(), "one", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			}, false, 0},
			{"status with the same", func() (*unstructured.Unstructured, error) {
				return r.in("a").UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
			}, false, 0},
			{"labels", update(func(obj *unstructured.Unstructured) { obj.SetLabels(map[string]string{"l": "v"}) }), true, 0},
			{"status", func() (*unstructured.Unstructured, error) { return setReady(t, r, now), nil }, true, 0},
			{"status with a spec", func() (*unstructured.Unstructured, error) {
				obj := now.DeepCopy()
				if r.changed != nil {
					obj.Object["spec"] = runtime.DeepCopyJSON(r.changed)
				}
				return r.in("a").UpdateStatus(t.Context(), obj, metav1.UpdateOptions{})
			}, false, 0},
			{"spec", update(func(obj *unstructured.Unstructured) {
				if r.changed != nil {
					obj.Object["spec"] = runtime.DeepCopyJSON(r.changed)
				}
			}), r.changed != nil, 1},
			{"spec as dry run", func() (*unstructured.Unstructured, error) {
				obj := now.DeepCopy()
				obj.SetLabels(map[string]string{"l": "dry"})
				if _, err := r.in("a").Update(t.Context(), obj, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
					return nil, err
				}
				return r.in("a").Get(t.Context(), "one", metav1.GetOptions{})
			}, false, 0},
		} {
			after, err := step.write()
			if err != nil {
				t.Errorf("%s: %v", step.name, err)
				continue
			}
			wantVersion, wantGeneration := revision(t, now.GetResourceVersion()), now.GetGeneration()
			if step.changes {
				wantVersion++
				wantGeneration += step.generation
			}
			if got := revision(t, after.GetResourceVersion()); got != wantVersion {
				t.Errorf("%s: resourceVersion %d, want %d", step.name, got, wantVersion)
			}
			if after.GetGeneration() != wantGeneration {
				t.Errorf("%s: generation %d, want %d", step.name, after.GetGeneration(), wantGeneration)
			}
			now = after
		}
		stale := now.DeepCopy()
		r.label(t, "a", "one", "yes")
		stale.SetLabels(map[string]string{"l": "stale"})
		if _, err := r.in("a").Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update with an old resourceVersion: %v, want 409", err)
		}
	})
}

// F37: an object with a finalizer stays, marked, until that is removed.
func TestFinalizers(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		held := r.object("a", "one")
		held.SetFinalizers([]string{"example.com/hold"})
		created := r.create(t, held)
		w := r.server.watch(t, r.path("a"), watchQuery("resourceVersion="+created.GetResourceVersion()))

		r.delete(t, "a", "one")
		marked := w.next(t)
		if marked.Type != watch.Modified || marked.Object.GetDeletionTimestamp() == nil || marked.Object.GetUID() != created.GetUID() {
			t.Errorf("delete: %s, deleted at %v, want MODIFIED with a time", marked, marked.Object.GetDeletionTimestamp())
		}
		r.delete(t, "a", "one")
		if now, err := r.in("a").Get(t.Context(), "one", metav1.GetOptions{}); err != nil || now.GetResourceVersion() != marked.Object.GetResourceVersion() {
			t.Errorf("the second delete changed something: %v, %v", now, err)
		}
		more := marked.Object.DeepCopy()
		more.SetFinalizers([]string{"example.com/hold", "example.com/more"})
		if _, err := r.in("a").Update(t.Context(), more, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("another finalizer on a deleted object: %v", err)
		}
		if _, err := r.in("a").Create(t.Context(), r.object("a", "one"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("create while it is being deleted: %v, want 409 AlreadyExists", err)
		}
		freed := marked.Object.DeepCopy()
		freed.SetFinalizers(nil)
		if _, err := r.in("a").Update(t.Context(), freed, metav1.UpdateOptions{}); err != nil {
			t.Errorf("removing the finalizer: %v", err)
		}
		if event := w.next(t); event.Type != watch.Deleted || event.Object.GetUID() != created.GetUID() {
			t.Errorf("got %s, want DELETED one", event)
		}
		if _, err := r.in("a").Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after the last finalizer: %v, want 404", err)
		}
	})
}

// F71: what is too large for etcd is too large here, on create as on update, and
// leaves what is there as it is.
func TestTooLargeAnObject(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		small := r.create(t, r.object("a", "one"))
		spec, err := json.Marshal(r.spec)
		if err != nil {
			t.Fatal(err)
		}
		// An owner's name is the one field of every kind without a limit of its own.
		body := func(name string, bytes int) string {
			return fmt.Sprintf(`{"apiVersion":"kommit.dev/v1alpha1","kind":%q,"metadata":{"name":%q,"ownerReferences":[`+
				`{"apiVersion":"v1","kind":"Node","uid":"u","name":"%s"}]},"spec":%s}`, r.kind, name, strings.Repeat("n", bytes), spec)
		}
		for name, answer := range map[string]answer{
			"create of 1.6 MB": r.server.do(t, http.MethodPost, r.path("a"), nil, body("large", 1_600_000), "Content-Type: application/json"),
			"create of 3 MB":   r.server.do(t, http.MethodPost, r.path("a"), nil, body("large", 3_000_000), "Content-Type: application/json"),
			"update to 1.6 MB": r.server.do(t, http.MethodPut, r.path("a")+"/one", nil, body("one", 1_600_000), "Content-Type: application/json"),
		} {
			if answer.code != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %d, want 413: %.300s", name, answer.code, answer.body)
			} else if reason := answer.status(t).Reason; reason != metav1.StatusReasonRequestEntityTooLarge {
				t.Errorf("%s: reason %s", name, reason)
			}
		}
		list := r.list(t, "a", metav1.ListOptions{FieldSelector: "metadata.name!=prod"})
		if len(list.Items) != 1 || list.Items[0].GetResourceVersion() != small.GetResourceVersion() {
			t.Errorf("stored are %v", versions(list))
		}
	})
}
