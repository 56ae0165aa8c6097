// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// storeStatuses takes items from the queue until ctx ends, some at the same time,
// and has each stored; what fails comes back to the queue, later each time.
func storeStatuses[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], writers int, store func(context.Context, T) error) {
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for storeNext(ctx, queue, store) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
}

func storeNext[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], store func(context.Context, T) error) bool {
	item, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(item)
	err := store(ctx, item)
	if err == nil {
		queue.Forget(item)
		return true
	}
	if !apierrors.IsConflict(err) { // somebody else was quicker, which is no fault
		klog.FromContext(ctx).Error(err, "A status was not stored, trying again", "of", item)
	}
	queue.AddRateLimited(item)
	return true
}
