// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	clientset "github.com/kommit-dev/kommit/generated/clientset/versioned/typed/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/git"
)

// probeInterval is how often a repository is looked at when nothing changes.
const probeInterval = 5 * time.Minute

// attributionInterval is how often a target is looked at for whether its changes find
// their authors.
const attributionInterval = 10 * time.Second

// untoldInterval is how often a deleted target looks whether its last requests have
// been told.
const untoldInterval = 100 * time.Millisecond

// subject is a GitTarget or a GitProvider whose conditions are to be looked at.
type subject struct {
	provider bool
	name     types.NamespacedName
}

// readiness keeps the status of GitTargets and GitProviders. Safe for
// concurrent use.
type readiness struct {
	client       clientset.KommitV1alpha1Interface
	destinations *destinations
	// flushOf says what keeps a target that is being deleted.
	flushOf func(types.NamespacedName) flush
	// attribution is as of Config.
	attribution func(types.NamespacedName) (reason, message string)
	queue       workqueue.TypedRateLimitingInterface[subject]

	mu sync.Mutex
	// commits are the last hashes pushed, per target.
	commits     map[types.NamespacedName]string
	generations map[types.NamespacedName]providerRepository
}

func newReadiness(client clientset.KommitV1alpha1Interface, d *destinations, flushOf func(types.NamespacedName) flush,
	attribution func(types.NamespacedName) (reason, message string)) *readiness {
	return &readiness{
		client:       client,
		destinations: d,
		flushOf:      flushOf,
		attribution:  attribution,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[subject](time.Second, time.Minute)),
		commits:     map[types.NamespacedName]string{},
		generations: map[types.NamespacedName]providerRepository{},
	}
}

// check has a target's conditions looked at.
func (r *readiness) check(target types.NamespacedName) { r.queue.Add(subject{name: target}) }

// checkProvider has a provider probed: what a push met says that its conditions may
// be out of date.
func (r *readiness) checkProvider(provider types.NamespacedName) {
	r.queue.Add(subject{provider: true, name: provider})
}

// targetGone forgets a deleted target.
func (r *readiness) targetGone(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.commits, name)
}

// pushed notes the target's last commit.
func (r *readiness) pushed(target types.NamespacedName, hash string) {
	r.mu.Lock()
	r.commits[target] = hash
	r.mu.Unlock()
	r.check(target)
}

// providerChanged has a new or changed provider probed; false if it is known as
// it is.
func (r *readiness) providerChanged(provider *v1alpha1.GitProvider) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := nameOf(provider)
	now := providerRepository{uid: provider.UID, generation: provider.Generation}
	if r.generations[name] == now {
		return false
	}
	r.generations[name] = now
	r.queue.Add(subject{provider: true, name: name})
	return true
}

func (r *readiness) providerGone(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.generations, name)
}

// run looks at what is due until ctx ends.
func (r *readiness) run(ctx context.Context) {
	// Two, so that one slow remote does not keep the others from being told.
	storeStatuses(ctx, r.queue, 2, r.update)
}

func (r *readiness) update(ctx context.Context, s subject) error {
	if s.provider {
		return r.updateProvider(ctx, s.name)
	}
	return r.updateTarget(ctx, s.name)
}

func (r *readiness) updateTarget(ctx context.Context, name types.NamespacedName) error {
	target, err := r.destinations.targets.Get(name)
	if err != nil {
		return ignoreNotFound(err)
	}
	if target.DeletionTimestamp != nil {
		return r.updateDeleted(ctx, target)
	}
	if !slices.Contains(target.Finalizers, v1alpha1.FlushFinalizer) {
		kept := target.DeepCopy()
		kept.Finalizers = append(kept.Finalizers, v1alpha1.FlushFinalizer)
		if target, err = r.client.GitTargets(name.Namespace).Update(ctx, kept, metav1.UpdateOptions{}); err != nil {
			return ignoreNotFound(err)
		}
	}
	_, err = r.destinations.resolve(name)
	next := target.DeepCopy()
	next.Status.ObservedGeneration = target.Generation
	r.mu.Lock()
	if hash := r.commits[name]; hash != "" {
		next.Status.Commit = hash
	}
	r.mu.Unlock()
	ready := readyCondition{status: metav1.ConditionTrue, reason: v1alpha1.ReasonReady}
	var stalled *StalledError
	switch {
	case errors.As(err, &stalled):
		ready = readyCondition{status: metav1.ConditionFalse, stalled: true, reason: stalled.Reason, message: stalled.Message}
	case err != nil:
		return err
	case target.Spec.Suspend:
		ready = readyCondition{status: metav1.ConditionFalse, stalled: true, reason: v1alpha1.ReasonTargetSuspended, message: "spec.suspend is true: nothing is committed"}
	}
	ready.set(&next.Status.Conditions, target.Generation)
	r.setAttribution(next)
	if apiequality.Semantic.DeepEqual(next.Status, target.Status) {
		return nil
	}
	_, err = r.client.GitTargets(name.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

// setAttribution says whether the target's changes can find their authors, and has
// that looked at again (C12). The target is captured and saved all the same, so it
// says nothing about Ready.
func (r *readiness) setAttribution(target *v1alpha1.GitTarget) {
	if r.attribution == nil || target.Spec.Attribution == v1alpha1.AttributionNone {
		apimeta.RemoveStatusCondition(&target.Status.Conditions, v1alpha1.ConditionAttributionDegraded)
		return
	}
	r.queue.AddAfter(subject{name: nameOf(target)}, attributionInterval)
	degraded := metav1.Condition{Type: v1alpha1.ConditionAttributionDegraded, Status: metav1.ConditionTrue, ObservedGeneration: target.Generation}
	degraded.Reason, degraded.Message = r.attribution(nameOf(target))
	if degraded.Reason == "" {
		degraded.Status, degraded.Reason = metav1.ConditionFalse, v1alpha1.ReasonNothingAmiss
	}
	apimeta.SetStatusCondition(&target.Status.Conditions, degraded)
}

// updateDeleted lets go of a deleted target once everything is pushed and told,
// and says until then what it waits for.
func (r *readiness) updateDeleted(ctx context.Context, target *v1alpha1.GitTarget) error {
	name := nameOf(target)
	if !slices.Contains(target.Finalizers, v1alpha1.FlushFinalizer) {
		return nil
	}
	next := target.DeepCopy()
	left := r.flushOf(name)
	switch {
	case left.open:
		return nil // looked at again when they are closed
	case left.writes == 0 && left.untold > 0:
		r.queue.AddAfter(subject{name: name}, untoldInterval)
		return nil
	case left.writes == 0:
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == v1alpha1.FlushFinalizer })
		_, err := r.client.GitTargets(name.Namespace).Update(ctx, next, metav1.UpdateOptions{})
		return ignoreNotFound(err)
	}
	message := fmt.Sprintf("%d closed windows wait for their push", left.writes)
	if left.failure != "" {
		message += ": " + left.failure
	}
	next.Status.ObservedGeneration = target.Generation
	readyCondition{status: metav1.ConditionFalse, reason: v1alpha1.ReasonFlushing, message: message}.set(&next.Status.Conditions, target.Generation)
	if apiequality.Semantic.DeepEqual(next.Status, target.Status) {
		return nil
	}
	_, err := r.client.GitTargets(name.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

func (r *readiness) updateProvider(ctx context.Context, name types.NamespacedName) error {
	provider, err := r.destinations.providers.Get(name)
	if err != nil {
		return ignoreNotFound(err)
	}
	r.queue.AddAfter(subject{provider: true, name: name}, probeInterval)
	next := provider.DeepCopy()
	next.Status.ObservedGeneration = provider.Generation
	r.probe(ctx, provider).set(&next.Status.Conditions, provider.Generation)
	if apiequality.Semantic.DeepEqual(next.Status, provider.Status) {
		return nil
	}
	_, err = r.client.GitProviders(name.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

// probe asks the remote for its receive-pack advertisement (DESIGN 4.1), and looks
// at the key that commits are signed with.
func (r *readiness) probe(ctx context.Context, provider *v1alpha1.GitProvider) readyCondition {
	repository, err := r.destinations.repository(provider)
	if err == nil {
		err = repository.Probe(ctx)
	}
	if err == nil {
		err = repository.CheckSigner(ctx)
	}
	if err == nil {
		return readyCondition{status: metav1.ConditionTrue, reason: v1alpha1.ReasonReady}
	}
	failed := readyCondition{status: metav1.ConditionFalse, stalled: true, message: err.Error()}
	var (
		unauthorized *git.UnauthorizedError
		unsupported  *git.UnsupportedError
	)
	switch {
	case secretAtFault(err):
		failed.reason = v1alpha1.ReasonInvalidSecret
	case errors.As(err, &unauthorized):
		failed.reason = v1alpha1.ReasonAuthenticationFailed
	case errors.As(err, &unsupported):
		failed.reason = v1alpha1.ReasonUnsupported
	default:
		failed.reason, failed.stalled = v1alpha1.ReasonUnreachable, false // may pass by itself
	}
	return failed
}

// readyCondition is Ready, and what follows from it for Reconciling and Stalled.
type readyCondition struct {
	status          metav1.ConditionStatus
	stalled         bool
	reason, message string
}

func (c readyCondition) set(conditions *[]metav1.Condition, generation int64) {
	boolean := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}
	for _, condition := range []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: c.status},
		{Type: v1alpha1.ConditionReconciling, Status: boolean[c.status != metav1.ConditionTrue && !c.stalled]},
		{Type: v1alpha1.ConditionStalled, Status: boolean[c.stalled]},
	} {
		condition.Reason, condition.Message, condition.ObservedGeneration = c.reason, c.message, generation
		apimeta.SetStatusCondition(conditions, condition)
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
