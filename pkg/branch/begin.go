// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/window"
)

// begin goes on from what the process before left, and lets in what comes. The
// informers have synced.
func (p *Pool) begin(left recovery.Recovered) error {
	targets, err := p.destinations.targets.List()
	if err != nil {
		return err
	}
	requests, err := p.config.Informers.CommitRequests().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	p.mu.Lock()
	if !p.stopping { // else the next process does
		p.takeOver(left, targets, requests)
	}
	p.mu.Unlock()
	close(p.begun)
	return nil
}

// takeOver makes the engine, the backlogs and the requests those of the process
// before, and has done what fell due meanwhile. Caller must hold mu.
func (p *Pool) takeOver(left recovery.Recovered, targets []*v1alpha1.GitTarget, requests []*v1alpha1.CommitRequest) {
	now := time.Now()
	byUID := map[types.UID]*v1alpha1.CommitRequest{}
	for _, request := range requests {
		byUID[request.UID] = request
	}
	p.followAgain(&left, byUID, now)
	effects := p.restoreEngine(&left, now)
	for _, w := range left.Writes {
		p.sequence++
		b := p.backlog(w.Target)
		b.entries = append(b.entries, &entry{sequence: p.sequence, write: w.Write, attempts: w.Attempts})
	}
	p.apply(now, effects)

	exists := map[types.NamespacedName]bool{}
	for _, target := range targets {
		exists[nameOf(target)] = true
		p.setTarget(target)
		if target.Spec.Suspend {
			p.suspend(nameOf(target))
		}
	}
	for _, target := range left.Targets {
		if !exists[target.Name] {
			p.apply(now, p.engine.RemoveTarget(now, target.Name))
			p.journal.TargetGone(target.Name)
		}
	}
	for _, request := range left.Requests {
		if byUID[request.Request.UID] == nil {
			p.withdraw(request.Request.UID)
		}
	}
	p.registerListed(requests)
	p.apply(now, p.engine.Wake(now))
	for target := range p.backlogs {
		p.dispatch(target)
	}
}

// restoreEngine makes the engine. Caller must hold mu.
func (p *Pool) restoreEngine(left *recovery.Recovered, now time.Time) []window.Effect {
	for i := range left.Targets {
		t := &left.Targets[i].Target
		if target, err := p.destinations.targets.Get(t.Name); err == nil {
			// What changed of it meanwhile is said by SetTarget.
			shared := t.Shared
			*t = engineTarget(target)
			t.Shared, t.Suspended = shared, false
		}
	}
	engine, effects := window.Restore(engineConfig(p.maxWindowBytes), now, left.State)
	p.engine = engine
	return effects
}

// followAgain begins to follow the requests that are in the journal and not finished,
// as far as they had come. Caller must hold mu.
func (p *Pool) followAgain(left *recovery.Recovered, stored map[types.UID]*v1alpha1.CommitRequest, now time.Time) {
	follow := func(uid types.UID, progress window.Progress) {
		object := stored[uid]
		if object == nil || window.Finished(object.Status) {
			return
		}
		if lagging, caughtUp := left.CaughtUp[uid]; caughtUp {
			all := lagging == ""
			progress.CaughtUp, progress.Lagging = &all, lagging
		}
		p.requests.add(object, progress)
		p.requests.report(uid, func(*window.Progress) {}) // its status may be behind
	}
	holds := map[types.UID]string{}
	for _, w := range left.Windows {
		holds[w.Request] = w.Window
	}
	for i := range left.Requests {
		request := &left.Requests[i].Request
		if object := stored[request.UID]; object != nil {
			request.AttachDeadline = attachDeadline(object, now)
		}
		if name, attached := holds[request.UID]; attached {
			follow(request.UID, window.Progress{Reason: v1alpha1.ReasonCollectingWindow, Window: name})
		} else {
			follow(request.UID, window.Progress{Reason: v1alpha1.ReasonWaitingForWindow})
		}
	}
	for _, w := range left.Writes {
		if w.Request != nil {
			follow(w.Request.UID, window.Progress{CutShort: w.CutShort}) // otherwise as its status says
			left.Released = append(left.Released, w.Request.UID)
		}
	}
	for _, end := range left.Ends {
		follow(end.UID, end.Progress)
		switch object := stored[end.UID]; {
		case object == nil:
			p.journal.Gone(end.UID)
		case window.Finished(object.Status):
			p.journal.Told(end.UID)
		default:
			left.Released = append(left.Released, end.UID)
		}
	}
}

// registerListed registers the requests that are not in the journal in the order of
// their creation (W9, W19). Caller must hold mu.
func (p *Pool) registerListed(requests []*v1alpha1.CommitRequest) {
	slices.SortStableFunc(requests, func(a, b *v1alpha1.CommitRequest) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, request := range requests {
		if window.Finished(request.Status) || !p.requests.add(request, window.Progress{Reason: v1alpha1.ReasonWaitingForWindow}) {
			continue
		}
		ready := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionReady)
		// CollectingWindow is also what is foreseen at create (DESIGN 4.6).
		if ready == nil || ready.Reason == v1alpha1.ReasonWaitingForWindow || ready.Reason == v1alpha1.ReasonCollectingWindow {
			p.register(request)
			continue
		}
		p.requests.report(request.UID, func(progress *window.Progress) {
			progress.Reason, progress.Message = v1alpha1.ReasonCommitFailed, interrupted
		})
	}
}

// interrupted is said to a request whose window was lost with the journal: its
// changes are compared with Git like all others (C9), its message is lost.
const interrupted = "what this save held was lost with the journal; look at the branch, and save again if the changes are not there"
