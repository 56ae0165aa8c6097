// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kommit-dev/kommit/test/recording"
)

// seen is a watch event with its object decoded.
type seen struct {
	resource schema.GroupVersionResource
	kind     watch.EventType
	object   *unstructured.Unstructured
}

// watcher records the watches of the script's namespace.
type watcher struct {
	mu      sync.Mutex
	list    []seen
	events  []recording.WatchEvent
	failure error
	// came is closed and replaced at each event.
	came chan struct{}
}

// watchAll begins to watch the resources in the namespace, which does not need to
// exist, and goes on until ctx ends.
func watchAll(ctx context.Context, client dynamic.Interface, namespace string, resources ...schema.GroupVersionResource) (*watcher, error) {
	w := &watcher{came: make(chan struct{})}
	for _, resource := range resources {
		stream, err := client.Resource(resource).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource.Resource, err)
		}
		go w.run(ctx, resource, stream)
	}
	return w, nil
}

func (w *watcher) run(ctx context.Context, resource schema.GroupVersionResource, stream watch.Interface) {
	defer stream.Stop()
	for event := range stream.ResultChan() {
		received := time.Now()
		u, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error || event.Type == watch.Bookmark {
			w.fail(fmt.Errorf("the watch of %s brought %s %v", resource.Resource, event.Type, event.Object))
			return
		}
		text, err := json.Marshal(u.Object)
		if err != nil {
			w.fail(err)
			return
		}
		w.mu.Lock()
		w.list = append(w.list, seen{resource, event.Type, u})
		w.events = append(w.events, recording.WatchEvent{Received: received, Resource: resource, Type: string(event.Type), Object: text})
		close(w.came)
		w.came = make(chan struct{})
		w.mu.Unlock()
	}
	if ctx.Err() == nil {
		w.fail(fmt.Errorf("the watch of %s ended", resource.Resource))
	}
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		w.failure = err
	}
	close(w.came)
	w.came = make(chan struct{})
}

// until waits for an event that is as wanted; one that came before counts.
func (w *watcher) until(ctx context.Context, wanted func(seen) bool) (*unstructured.Unstructured, error) {
	next := 0
	for {
		w.mu.Lock()
		failure, came := w.failure, w.came
		list := w.list[next:]
		next = len(w.list)
		w.mu.Unlock()
		if failure != nil {
			return nil, failure
		}
		for _, s := range list {
			if wanted(s) {
				return s.object, nil
			}
		}
		select {
		case <-came:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// gone waits for the end of an object.
func (w *watcher) gone(ctx context.Context, u *unstructured.Unstructured) error {
	_, err := w.until(ctx, func(s seen) bool { return s.kind == watch.Deleted && s.object.GetUID() == u.GetUID() })
	return err
}

func (w *watcher) take() ([]seen, []recording.WatchEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.list, w.events, w.failure
}
