// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// kubectl wait: a condition that is true already ends the wait, one that becomes
// true does, and so does the deletion.
func TestWaitForACondition(t *testing.T) {
	t.Parallel()
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		ctx, cancel := context.WithTimeout(t.Context(), guard)
		defer cancel()
		one := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = "metadata.name=one"
				return r.in("a").List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.FieldSelector = "metadata.name=one"
				return r.in("a").Watch(ctx, options)
			},
		}, r.server.client)
		ready := func(event watch.Event) (bool, error) {
			obj, ok := event.Object.(*unstructured.Unstructured)
			return ok && readyStatus(obj) == string(metav1.ConditionTrue), nil
		}
		created := r.create(t, r.object("a", "one"))
		waited := make(chan error, 1)
		go func() {
			_, err := watchtools.UntilWithSync(ctx, one, &unstructured.Unstructured{}, nil, ready)
			waited <- err
		}()
		setReady(t, r, created)
		if err := <-waited; err != nil {
			t.Errorf("until it becomes true: %v", err)
		}
		event, err := watchtools.UntilWithSync(ctx, one, &unstructured.Unstructured{}, nil, ready)
		if err != nil || event.Object.(*unstructured.Unstructured).GetUID() != created.GetUID() {
			t.Errorf("true already: %v", err)
		}
		if event, err := watchtools.Until(ctx, created.GetResourceVersion(), one, ready); err != nil || event.Type != watch.Modified {
			t.Errorf("from the resourceVersion of the create: %v, %v", event, err)
		}
		now := r.list(t, "a", metav1.ListOptions{}).GetResourceVersion()
		r.delete(t, "a", "one")
		if _, err := watchtools.Until(ctx, now, one, func(event watch.Event) (bool, error) {
			return event.Type == watch.Deleted, nil
		}); err != nil {
			t.Errorf("until it is deleted: %v", err)
		}
		if _, err := r.in("a").Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("deleted: %v", err)
		}
	})
}

func readyStatus(obj *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			return c["status"].(string)
		}
	}
	return ""
}

func setReady(t *testing.T, r *resourceClient, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	obj = obj.DeepCopy()
	obj.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}
	updated, err := r.in(obj.GetNamespace()).UpdateStatus(t.Context(), obj, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return updated
}
