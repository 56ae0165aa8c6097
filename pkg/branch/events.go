// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	listers "github.com/kommit-dev/kommit/generated/listers/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

// targetCache and providerCache address the informers' stores by NamespacedName.
type (
	targetCache   struct{ lister listers.GitTargetLister }
	providerCache struct{ lister listers.GitProviderLister }
)

var (
	_ targetLister   = targetCache{}
	_ providerLister = providerCache{}
)

func (c targetCache) Get(name types.NamespacedName) (*v1alpha1.GitTarget, error) {
	return c.lister.GitTargets(name.Namespace).Get(name.Name)
}

func (c targetCache) List() ([]*v1alpha1.GitTarget, error) { return c.lister.List(labels.Everything()) }

func (c providerCache) Get(name types.NamespacedName) (*v1alpha1.GitProvider, error) {
	return c.lister.GitProviders(name.Namespace).Get(name.Name)
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// handlers calls set for each object that was added or changed, and gone for
// each that was deleted, also when it was re-created unseen. All wait for ready, and
// nothing is called when that says no.
func handlers[T metav1.Object](ready func() bool, set, gone func(T)) cache.ResourceEventHandler {
	return cache.FilteringResourceEventHandler{
		FilterFunc: func(any) bool { return ready() },
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { set(object.(T)) },
			UpdateFunc: func(before, object any) {
				if before.(T).GetUID() != object.(T).GetUID() {
					gone(before.(T))
				}
				set(object.(T))
			},
			DeleteFunc: func(object any) {
				if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = missed.Obj
				}
				gone(object.(T))
			},
		},
	}
}

// handleEvents follows the server's own kinds. What comes before begin is over waits:
// what is there by then is taken over, and told again without effect.
func (p *Pool) handleEvents() error {
	ready := func() bool {
		select {
		case <-p.begun:
			return true
		case <-p.ctx.Done():
			return false
		}
	}
	_, targets := p.config.Informers.GitTargets().Informer().AddEventHandler(handlers(ready, p.targetSet, p.targetGone))
	_, providers := p.config.Informers.GitProviders().Informer().AddEventHandler(handlers(ready, p.providerSet, p.providerGone))
	_, requests := p.config.Informers.CommitRequests().Informer().AddEventHandler(handlers(ready, p.requestSet, p.requestGone))
	if err := errors.Join(targets, providers, requests); err != nil {
		return fmt.Errorf("watching the server's own kinds: %w", err)
	}
	return nil
}

func (p *Pool) targetSet(target *v1alpha1.GitTarget) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := nameOf(target)
	if p.stopping {
		return
	}
	known := p.targets[name]
	if target.DeletionTimestamp != nil {
		p.targetDeleting(target, known != nil && known.UID == target.UID)
		return
	}
	if known == nil || known.UID != target.UID || known.Generation != target.Generation {
		p.setTarget(target)
		if target.Spec.Suspend {
			p.suspend(name)
		}
		p.branchChanged(target)
		if known != nil {
			p.branchChanged(known)
		}
	}
	p.readiness.check(name)
}

// branchChanged looks again at the targets that this one may stand in the way of,
// itself included. Caller must hold mu.
func (p *Pool) branchChanged(target *v1alpha1.GitTarget) {
	affected := func(name types.NamespacedName) bool {
		other := p.targets[name]
		return name == nameOf(target) || other != nil && other.Spec.Branch == target.Spec.Branch
	}
	p.retry(affected)
	p.checkAll(affected)
}

// setTarget tells the engine, and registers the requests that came before their
// target was seen. Caller must hold mu.
func (p *Pool) setTarget(target *v1alpha1.GitTarget) {
	name := nameOf(target)
	p.targets[name] = target
	now := time.Now()
	p.apply(now, p.engine.SetTarget(now, engineTarget(target)))
	waiting := p.waiting[name]
	delete(p.waiting, name)
	for _, request := range waiting {
		p.apply(now, p.engine.Register(now, engineRequest(request, now)))
	}
}

// ensureTarget makes the engine know the target if the informer does: capture
// may have seen it first. Caller must hold mu.
func (p *Pool) ensureTarget(name types.NamespacedName) bool {
	if p.targets[name] != nil {
		return true
	}
	target, err := p.destinations.targets.Get(name)
	if err != nil || target.DeletionTimestamp != nil {
		return false // deleted: its windows are closed
	}
	p.setTarget(target)
	return true
}

func (p *Pool) targetGone(target *v1alpha1.GitTarget) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readiness.targetGone(nameOf(target))
	p.closeTarget(target)
	p.destinations.targetGone(p.ctx, target)
	p.journal.TargetGone(nameOf(target))
}

func (p *Pool) providerSet(provider *v1alpha1.GitProvider) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readiness.providerChanged(provider) {
		p.usersChanged(provider)
	}
}

func (p *Pool) providerGone(provider *v1alpha1.GitProvider) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.destinations.forget(nameOf(provider))
	p.readiness.providerGone(nameOf(provider))
	p.usersChanged(provider)
}

// usersChanged looks again at the targets of a provider, and at those that they
// may stand in the way of. Caller must hold mu.
func (p *Pool) usersChanged(provider *v1alpha1.GitProvider) {
	// From the informer: a target that is being deleted is waiting, too.
	targets, err := p.destinations.targets.List()
	if err != nil {
		klog.FromContext(p.ctx).Error(err, "The users of a GitProvider are not known", "provider", nameOf(provider))
		return
	}
	branches := map[string]bool{}
	for _, target := range targets {
		if target.Namespace == provider.Namespace && target.Spec.GitProviderRef.Name == provider.Name {
			branches[target.Spec.Branch] = true
		}
	}
	affected := func(name types.NamespacedName) bool {
		target, err := p.destinations.targets.Get(name)
		return err == nil && branches[target.Spec.Branch]
	}
	p.retry(affected)
	p.checkAll(affected)
}

// checkAll has the conditions of the matching targets looked at, and what failed
// for them elsewhere tried again. Caller must hold mu.
func (p *Pool) checkAll(matches func(types.NamespacedName) bool) {
	for name := range p.targets {
		if matches(name) {
			p.readiness.check(name)
			p.config.Retry(name)
		}
	}
}

// requestSet registers a stored request, once (W6).
func (p *Pool) requestSet(request *v1alpha1.CommitRequest) {
	if window.Finished(request.Status) {
		p.requests.forget(request.UID)
		p.expiry.schedule(request)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests.add(request, window.Progress{Reason: v1alpha1.ReasonWaitingForWindow}) {
		p.register(request)
	}
}

// register hands a request to the engine as soon as its target is known. Caller must
// hold mu.
func (p *Pool) register(request *v1alpha1.CommitRequest) {
	name := targetOf(request)
	if p.stopping {
		return // the next process registers it
	}
	if p.ensureTarget(name) {
		now := time.Now()
		p.apply(now, p.engine.Register(now, engineRequest(request, now)))
		return
	}
	p.waiting[name] = append(p.waiting[name], request)
	go p.lookUp(name)
}

func targetOf(request *v1alpha1.CommitRequest) types.NamespacedName {
	return types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.GitTargetRef.Name}
}

// lookUp decides about requests whose target is not in the informer: it may be
// about to arrive there, or be gone.
func (p *Pool) lookUp(name types.NamespacedName) {
	target, err := p.config.Client.GitTargets(name.Namespace).Get(p.ctx, name.Name, metav1.GetOptions{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping || len(p.waiting[name]) == 0 {
		return
	}
	switch {
	case err == nil && p.targets[name] == nil && target.DeletionTimestamp == nil:
		p.setTarget(target)
	case apierrors.IsNotFound(err), err == nil && target.DeletionTimestamp != nil:
		for _, request := range p.waiting[name] {
			p.requests.report(request.UID, func(progress *window.Progress) { progress.Reason = v1alpha1.ReasonTargetDeleted })
		}
		delete(p.waiting, name)
	case err != nil && p.ctx.Err() == nil:
		time.AfterFunc(firstBackoff, func() { p.lookUp(name) })
	}
}

func (p *Pool) requestGone(request *v1alpha1.CommitRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.withdraw(request.UID)
	target := targetOf(request)
	p.waiting[target] = slices.DeleteFunc(p.waiting[target], func(other *v1alpha1.CommitRequest) bool { return other.UID == request.UID })
	if len(p.waiting[target]) == 0 {
		delete(p.waiting, target)
	}
	p.requests.forget(request.UID)
}

// withdraw tells the engine that a request's object is gone. Caller must hold mu.
func (p *Pool) withdraw(uid types.UID) {
	now := time.Now()
	p.apply(now, p.engine.Withdraw(now, uid))
	p.journal.Gone(uid)
}

func engineTarget(target *v1alpha1.GitTarget) window.Target {
	return window.Target{
		Name:        nameOf(target),
		IdleTimeout: target.Spec.Window.IdleTimeout.Duration,
		MaxDuration: target.Spec.Window.MaxDuration.Duration,
		Shared:      target.Spec.Attribution == v1alpha1.AttributionNone,
		Suspended:   target.Spec.Suspend,
	}
}

func engineRequest(request *v1alpha1.CommitRequest, now time.Time) window.Request {
	r := window.Request{
		RequestRef:          window.RequestRef{Namespace: request.Namespace, Name: request.Name, UID: request.UID},
		Target:              targetOf(request),
		Author:              window.Author{Username: request.Spec.RequestedBy.Username},
		Message:             request.Spec.Message,
		Attach:              request.Spec.Window.Attach,
		MaxDuration:         request.Spec.Window.MaxDuration.Duration,
		AttachDeadline:      attachDeadline(request, now),
		WhenNothingToCommit: request.Spec.WhenNothingToCommit,
	}
	if idle := request.Spec.Window.IdleTimeout; idle != nil {
		r.IdleTimeout = idle.Duration
	}
	return r
}

// attachDeadline is the one that was fixed at create (W6), by now's clock, which goes
// on evenly when the time of day is set anew. What is left of it is never more than
// the request asked for: then the clock was set back since.
func attachDeadline(request *v1alpha1.CommitRequest, now time.Time) time.Time {
	deadline := request.Status.AttachDeadline
	if deadline == nil {
		return time.Time{}
	}
	left := deadline.Sub(now)
	if timeout := request.Spec.Window.AttachTimeout; timeout != nil {
		left = min(left, timeout.Duration)
	}
	return now.Add(left)
}
