// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/window"
)

// fixed are the objects that an informer would hold.
type fixed[T any] map[types.NamespacedName]T

func (f fixed[T]) Get(name types.NamespacedName) (T, error) {
	object, ok := f[name]
	if !ok {
		return object, apierrors.NewNotFound(v1alpha1.Resource("objects"), name.Name)
	}
	return object, nil
}

func (f fixed[T]) List() ([]T, error) {
	var all []T
	for _, object := range f {
		all = append(all, object)
	}
	return all, nil
}

// newBacklogs returns a Pool whose workers are driven by hand.
func newBacklogs(t *testing.T, maxPerMinute int32) *Pool {
	p := NewPool(0, newJournal(t))
	p.ctx = t.Context()
	p.requests = newRequests(nil, p.journal)
	p.destinations = &destinations{
		targets: fixed[*v1alpha1.GitTarget]{prod: {
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prod", UID: "prod"},
			Spec:       v1alpha1.GitTargetSpec{GitProviderRef: v1alpha1.LocalObjectReference{Name: "git"}, Branch: "main"},
		}},
		providers: fixed[*v1alpha1.GitProvider]{{Namespace: namespace, Name: "git"}: {
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "git", UID: "git"},
			Spec:       v1alpha1.GitProviderSpec{URL: "https://git.example.com/shop.git", Push: v1alpha1.PushOptions{MaxPerMinute: maxPerMinute}},
		}},
	}
	p.readiness = newReadiness(nil, p.destinations, nil, nil)
	return p
}

// addClosed adds a closed window without starting the worker.
func (p *Pool) addClosed(name string) {
	p.sequence++
	b := p.backlog(prod)
	b.entries = append(b.entries, &entry{sequence: p.sequence, write: window.Write{Name: name, Target: prod}})
}

func pushed(batch []*entry) []result {
	results := make([]result, len(batch))
	for i, e := range batch {
		results[i] = result{entry: e, tried: true, built: git.Built{Hash: "1234", Changed: []string{"a"}}}
	}
	return results
}

// G6, G7: what is queued goes out in one session, one at a time, and no more often
// than the provider allows.
func TestG7PushesArePaced(t *testing.T) {
	p := newBacklogs(t, 6)
	w := p.worker(remoteBranch{url: "https://git.example.com/shop", branch: "main"})
	now := time.Now()
	p.addClosed("one")
	p.addClosed("two")
	batch, repository, _ := p.take(w, now)
	if len(batch) != 2 {
		t.Fatalf("the first session has %d writes, want both", len(batch))
	}
	p.addClosed("three")
	if again, _, wait := p.take(w, now); len(again) != 0 || wait != 0 {
		t.Errorf("a second session of %d writes while one runs (wait %s)", len(again), wait)
	}
	p.settle(w, repository, pushed(batch))
	if early, _, wait := p.take(w, now.Add(time.Second)); len(early) != 0 || wait != 9*time.Second {
		t.Errorf("after 1s: %d writes, wait %s; want none and 9s", len(early), wait)
	}
	if batch, _, _ = p.take(w, now.Add(10*time.Second)); len(batch) != 1 {
		t.Errorf("after 10s: %d writes, want 1", len(batch))
	}
}

// A write is kept until it is settled, and an unreachable remote is left alone.
func TestUnreachableIsLeftAloneForAWhile(t *testing.T) {
	p := newBacklogs(t, 0)
	w := p.worker(remoteBranch{url: "https://git.example.com/shop", branch: "main"})
	p.addClosed("one")
	batch, repository, _ := p.take(w, time.Now())
	p.settle(w, repository, []result{{entry: batch[0], tried: true, err: &git.UnreachableError{Err: errors.New("asked to wait"), RetryAfter: time.Hour}}})
	if early, _, wait := p.take(w, time.Now()); len(early) != 0 || wait < 59*time.Minute {
		t.Errorf("%d writes, wait %s; want none and what the remote asked for", len(early), wait)
	}
	if batch, _, _ = p.take(w, time.Now().Add(time.Hour+time.Minute)); len(batch) != 1 {
		t.Errorf("later: %d writes, want 1", len(batch))
	}
}

// W16, W18: what was being pushed when its target was suspended is given up only where
// it is certain that no commit of it landed; else it is looked for, and never by the
// slow timer alone.
func TestW18WhatWasBeingPushedWhenItsTargetWasSuspended(t *testing.T) {
	sent := []recovery.Attempt{{Hash: "1234"}}
	for name, test := range map[string]struct {
		attempts []recovery.Attempt
		tried    bool
		err      error
		sought   bool
	}{
		"nothing was sent, the remote is away": {tried: true, err: &git.UnreachableError{Err: errors.New("away")}},
		"nothing was sent, not its turn":       {},
		"sent, refused":                        {attempts: sent, tried: true, err: &git.RefusedError{Text: "no"}},
		"sent, the answer was lost":            {attempts: sent, tried: true, err: &git.UnreachableError{Err: errors.New("cut")}, sought: true},
		"sent before, not its turn":            {attempts: sent, sought: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newBacklogs(t, 0)
			recompared := false
			p.config.Recompare = func(types.NamespacedName) { recompared = true }
			w := p.worker(remoteBranch{url: "https://git.example.com/shop", branch: "main"})
			p.addClosed("one")
			batch, repository, _ := p.take(w, time.Now())
			batch[0].attempts, batch[0].dropped = test.attempts, true
			p.settle(w, repository, []result{{entry: batch[0], tried: test.tried, err: test.err}})
			if kept := p.backlogs[prod] != nil; kept != test.sought || recompared == test.sought {
				t.Errorf("kept %v, compared again %v; want it to be looked for: %v", kept, recompared, test.sought)
			}
			if again, _, _ := p.take(w, time.Now().Add(time.Hour)); test.sought && (len(again) != 1 || !again[0].sought) {
				t.Errorf("the next session has %d writes, want the one that is looked for", len(again))
			}
		})
	}
}
