// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	clientset "github.com/kommit-dev/kommit/generated/clientset/versioned/typed/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/failpoint"
	"github.com/kommit-dev/kommit/pkg/window"
)

// statusWriters is how many statuses are stored at the same time: enough to
// share one fsync of the store between the requests of a batch.
const statusWriters = 8

// noteDelay is how long what was noted waits for something to be stored with it.
const noteDelay = 250 * time.Millisecond

// requests is what is known of each CommitRequest that is not finished, and the
// only writer of their status. Safe for concurrent use.
type requests struct {
	client  clientset.CommitRequestsGetter
	journal *recovery.Journal
	queue   workqueue.TypedRateLimitingInterface[types.UID]

	mu    sync.Mutex
	byUID map[types.UID]*request
	// saved is closed, and made anew, each time a status was stored.
	saved chan struct{}
}

type request struct {
	ref      window.RequestRef
	progress window.Progress
	// over: the progress is final, later reports are dropped (one terminal state).
	over bool
	// stored is the object as last read or written.
	stored *v1alpha1.CommitRequest
	// unsaved: the status is not stored as the progress is.
	unsaved bool
}

// status is the one that follows the stored one.
func (r *request) status() v1alpha1.CommitRequestStatus {
	return window.Status(r.stored.Status, r.stored.Generation, r.progress, time.Now())
}

func newRequests(client clientset.CommitRequestsGetter, journal *recovery.Journal) *requests {
	return &requests{
		client:  client,
		journal: journal,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 30*time.Second)),
		byUID: map[types.UID]*request{},
		saved: make(chan struct{}),
	}
}

// add begins to follow a stored request that has come as far as progress; false if it
// is followed already (W6).
func (r *requests) add(object *v1alpha1.CommitRequest, progress window.Progress) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byUID[object.UID] != nil {
		return false
	}
	r.byUID[object.UID] = &request{
		ref:      window.RequestRef{Namespace: object.Namespace, Name: object.Name, UID: object.UID},
		progress: progress,
		stored:   object,
	}
	return true
}

// forget stops following a request that is finished, as stored, or deleted.
func (r *requests) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byUID, uid)
	r.journal.Told(uid)
	r.announce()
}

// report changes what is known of a request and has its status stored. A report
// about a request that is over, or not followed (its name may belong to another
// by now), changes nothing.
func (r *requests) report(uid types.UID, change func(*window.Progress)) {
	r.change(uid, 0, change)
}

// note is report of what is worth no write of its own as long as the end may be
// near: it is stored together with what is reported next, or a moment later.
func (r *requests) note(uid types.UID, change func(*window.Progress)) {
	r.change(uid, noteDelay, change)
}

func (r *requests) change(uid types.UID, delay time.Duration, change func(*window.Progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.byUID[uid]
	if known == nil || known.over {
		return
	}
	change(&known.progress)
	known.over, known.unsaved = window.Finished(known.status()), true
	if known.over {
		r.journal.End(known.ref, known.progress)
	}
	r.queue.AddAfter(uid, delay) // without a delay, at once
}

// run stores statuses until ctx ends.
func (r *requests) run(ctx context.Context) {
	storeStatuses(ctx, r.queue, statusWriters, r.store)
}

// store writes the status of one request if it differs from the stored one.
func (r *requests) store(ctx context.Context, uid types.UID) error {
	r.mu.Lock()
	known := r.byUID[uid]
	if known == nil {
		r.mu.Unlock()
		return nil
	}
	object, status, ref := known.stored, known.status(), known.ref
	r.mu.Unlock()

	if apiequality.Semantic.DeepEqual(status, object.Status) {
		r.keep(uid, object)
		return nil
	}
	// What others are told is not forgotten by a crash (D3, D4).
	if err := r.journal.Sync(ctx); err != nil {
		return err
	}
	next := object.DeepCopy()
	next.Status = status
	failpoint.Hit(failpoint.StatusBefore)
	stored, err := r.client.CommitRequests(ref.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	failpoint.Hit(failpoint.StatusAfter)
	switch {
	case apierrors.IsConflict(err):
		if stored, err = r.client.CommitRequests(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}); err == nil && stored.UID == uid {
			r.keep(uid, stored)
			return r.store(ctx, uid)
		}
	case err == nil:
		r.keep(uid, stored)
		return nil
	}
	if err == nil || apierrors.IsNotFound(err) { // deleted, or re-created under its name
		r.journal.Gone(uid)
		r.forget(uid)
		return nil
	}
	return err
}

func (r *requests) keep(uid types.UID, object *v1alpha1.CommitRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.byUID[uid]; known != nil {
		known.stored = object
		known.unsaved = !apiequality.Semantic.DeepEqual(known.status(), object.Status)
		if known.over && !known.unsaved {
			r.journal.Told(uid)
		}
	}
	r.announce()
}

// announce wakes those who wait in flush. Caller must hold mu.
func (r *requests) announce() {
	close(r.saved)
	r.saved = make(chan struct{})
}

// untold is how many requests of a target have an end that is not stored yet.
func (r *requests) untold(target types.NamespacedName) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, known := range r.byUID {
		if known.unsaved && known.ref.Namespace == target.Namespace && known.stored.Spec.GitTargetRef.Name == target.Name {
			n++
		}
	}
	return n
}

// flush waits until all that was reported is stored, or ctx ends.
func (r *requests) flush(ctx context.Context) error {
	for {
		r.mu.Lock()
		saved, left := r.saved, 0
		for _, known := range r.byUID {
			if known.unsaved {
				left++
			}
		}
		r.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-saved:
		case <-ctx.Done():
			return fmt.Errorf("the status of %d CommitRequests was not stored: %w", left, ctx.Err())
		}
	}
}
