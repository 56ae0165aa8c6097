// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// A GitTarget that is deleted stays, by its finalizer, until what was done before
// the deletion is on the remote. An edit may be older than the deletion and come
// after it, with its audit event; so its windows stay open until capture has caught
// up (5.5), as for a save. Then they close, and nothing new comes in.

// targetDeleting closes a target that is being deleted, if it is open still, once
// that was caught up with. Caller must hold mu.
func (p *Pool) targetDeleting(target *v1alpha1.GitTarget, open bool) {
	name := nameOf(target)
	switch _, err := p.destinations.resolveTarget(target); {
	case !open:
	case target.Spec.Suspend, providerGone(err): // nothing of it will be on a remote
		p.closeTarget(target)
	case p.leaving[name] != target.UID:
		p.leaving[name] = target.UID
		go p.leave(target)
	}
	if target.Spec.Suspend {
		p.suspend(name) // given up
	}
	p.readiness.check(name)
}

// leave closes a target after all that was persisted before its deletion was seen
// has reached its windows, or the bound of catching up is over.
func (p *Pool) leave(target *v1alpha1.GitTarget) {
	name := nameOf(target)
	ctx, cancel := context.WithTimeout(p.ctx, p.config.CatchUpTimeout)
	defer cancel()
	lagging := p.config.CatchUp(ctx, name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving[name] == target.UID {
		delete(p.leaving, name)
	}
	if p.ctx.Err() != nil || p.stopping {
		return // the windows were closed by that
	}
	if open := p.targets[name]; open == nil || open.UID != target.UID {
		return // closed meanwhile
	}
	if lagging != "" {
		klog.FromContext(p.ctx).Info("A deleted GitTarget is closed before all changes were seen", "gitTarget", name, "lagging", lagging)
	}
	if latest, err := p.destinations.targets.Get(name); err == nil && latest.UID == target.UID {
		target = latest
	}
	p.closeTarget(target)
	p.readiness.check(name)
}

// closeTarget closes the windows of a target, and has what is left go where the
// target, as it was last, would have it. Caller must hold mu.
func (p *Pool) closeTarget(target *v1alpha1.GitTarget) {
	name := nameOf(target)
	delete(p.targets, name)
	b := p.backlog(name)
	if d, err := p.destinations.resolveTarget(target); err == nil {
		b.route, b.routed = d, true
	} else if !providerGone(err) {
		b.routed = false // it must not go there any more
	}
	now := time.Now()
	p.apply(now, p.engine.RemoveTarget(now, name))
	if len(b.entries) == 0 {
		delete(p.backlogs, name)
	}
	p.branchChanged(target)
}

// deleting says whether a target is being deleted.
func (p *Pool) deleting(name types.NamespacedName) bool {
	target, err := p.destinations.targets.Get(name)
	return err == nil && target.DeletionTimestamp != nil
}

// flush is what keeps a target that is being deleted.
type flush struct {
	// open: its windows are not closed yet. The informer's store knows of a deletion
	// before those whom the informer tells.
	open bool
	// writes are not on the remote, the last attempt having failed for failure.
	writes  int
	failure string
	// untold are requests whose status is not stored yet.
	untold int
}

func (p *Pool) flushOf(name types.NamespacedName) flush {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := flush{open: p.targets[name] != nil, untold: p.requests.untold(name)}
	if b := p.backlogs[name]; b != nil {
		left.writes, left.failure = len(b.entries), b.failure
	}
	return left
}

// hopeless says whether what failed for a target that is being deleted can never
// succeed: its GitProvider or its Secret went before it, as when a namespace is
// deleted. Nothing must hold that up. Caller must hold mu.
func (p *Pool) hopeless(target types.NamespacedName, err error) bool {
	if !p.deleting(target) {
		return false
	}
	if secret, ok := errors.AsType[*SecretError](err); ok && apierrors.IsNotFound(secret.Err) {
		return true
	}
	_, err = p.destinations.resolve(target)
	return providerGone(err)
}

func providerGone(err error) bool {
	stalled, ok := errors.AsType[*StalledError](err)
	return ok && stalled.Reason == v1alpha1.ReasonProviderNotFound
}
