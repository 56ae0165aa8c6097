// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	clientset "github.com/kommit-dev/kommit/generated/clientset/versioned/typed/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

// expiry deletes CommitRequests that have been finished for as long as their
// spec.ttlSecondsAfterFinished says. Safe for concurrent use.
type expiry struct {
	client clientset.CommitRequestsGetter
	queue  workqueue.TypedRateLimitingInterface[window.RequestRef]
}

func newExpiry(client clientset.CommitRequestsGetter) *expiry {
	return &expiry{
		client: client,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[window.RequestRef](time.Second, time.Minute)),
	}
}

// expires is when a finished request is to be deleted; false: never.
func expires(request *v1alpha1.CommitRequest) (time.Time, bool) {
	ttl, finished := request.Spec.TTLSecondsAfterFinished, request.Status.CompletionTime
	if ttl == nil || finished == nil || !window.Finished(request.Status) {
		return time.Time{}, false
	}
	return finished.Add(time.Duration(*ttl) * time.Second), true
}

// schedule has a request deleted when its time has come; one that is not finished
// is left alone.
func (x *expiry) schedule(request *v1alpha1.CommitRequest) {
	if at, ok := expires(request); ok && request.DeletionTimestamp == nil {
		x.queue.AddAfter(window.RequestRef{Namespace: request.Namespace, Name: request.Name, UID: request.UID}, time.Until(at))
	}
}

// run deletes what is due until ctx ends.
func (x *expiry) run(ctx context.Context) { storeStatuses(ctx, x.queue, 1, x.delete) }

// delete looks at the request as it is now: it may be another one of the same
// name, or not be finished any more.
func (x *expiry) delete(ctx context.Context, ref window.RequestRef) error {
	request, err := x.client.CommitRequests(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	at, ok := expires(request)
	switch {
	case request.UID != ref.UID || !ok || request.DeletionTimestamp != nil:
		return nil
	case time.Now().Before(at):
		x.schedule(request)
		return nil
	}
	background := metav1.DeletePropagationBackground
	err = x.client.CommitRequests(ref.Namespace).Delete(ctx, ref.Name, metav1.DeleteOptions{
		PropagationPolicy: &background,
		Preconditions:     &metav1.Preconditions{UID: new(request.UID), ResourceVersion: new(request.ResourceVersion)},
	})
	if apierrors.IsConflict(err) {
		return err // changed just now: look again
	}
	return ignoreNotFound(err)
}
