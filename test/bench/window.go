// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

// windowRounds are those counted; one more comes before them.
const windowRounds = 51

// What a round consists of: long enough that what else runs on the machine takes
// its share of both sides.
const (
	crowdSaves = 2_000
	idleWakes  = 200_000
)

// windowEvent measures an event with 10,000 open windows and 1,000 waiting
// requests; the peer is the same engine with 10 and 1.
func windowEvent(context.Context) (sides, error) { return crowded((*crowd).saves), nil }

// windowIdleWake measures a wake with nothing due, with the same two crowds.
func windowIdleWake(context.Context) (sides, error) { return crowded((*crowd).wakes), nil }

func crowded(measure func(*crowd) (float64, error)) sides {
	many, few := newCrowd(10_000, 1_000), newCrowd(10, 1)
	return sides{
		ours:  func(context.Context, int) (float64, error) { return measure(many) },
		peer:  func(context.Context, int) (float64, error) { return measure(few) },
		close: func(context.Context) error { return nil },
	}
}

// crowd is an engine with one target, on which many windows are open and many
// requests wait.
type crowd struct {
	engine *window.Engine
	now    time.Time
	target types.NamespacedName
	// windows that stay open.
	windows int
	// saved counts the saves of one more user.
	saved int
}

func newCrowd(windows, waiting int) *crowd {
	c := &crowd{
		engine:  window.New(window.Config{}),
		now:     time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		target:  types.NamespacedName{Namespace: "shop", Name: "prod"},
		windows: windows,
	}
	c.engine.SetTarget(c.now, window.Target{Name: c.target, IdleTimeout: 5 * time.Hour, MaxDuration: 10 * time.Hour})
	for i := range windows {
		c.engine.Change(c.tick(), c.edit(author(i)))
	}
	for i := range waiting {
		name := fmt.Sprintf("waiting-%d", i)
		request := c.request(name, name)
		request.AttachDeadline = c.now.Add(time.Hour)
		c.engine.Register(c.tick(), request)
		c.engine.CaughtUp(c.tick(), request.UID)
	}
	c.engine.Touched()
	return c
}

// tick is a little later each time; all rounds together stay before the first
// deadline.
func (c *crowd) tick() time.Time {
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

func author(i int) string { return fmt.Sprintf("author-%d", i) }

func (c *crowd) edit(author string) window.Change {
	return window.Change{
		Target: c.target, Author: window.Author{Username: author},
		Object:   window.Object{Resource: "configmaps", Namespace: "shop", Name: "of-" + author},
		Manifest: []byte("kind: ConfigMap"), Operation: window.Update,
	}
}

func (c *crowd) request(name, author string) window.Request {
	return window.Request{
		RequestRef: window.RequestRef{Namespace: "shop", Name: name, UID: types.UID(name)},
		Target:     c.target, Author: window.Author{Username: author}, Attach: v1alpha1.AttachCurrentOrNext,
	}
}

// saves are one user's, each from the change to the deletion of the request,
// between changes to all the windows that stay open; after each event is asked
// what the engine's owner asks. It returns the nanoseconds of one event, without
// those that it took to make up what happens.
func (c *crowd) saves() (float64, error) {
	const saver = "saver"
	edits, requests := make([]window.Change, crowdSaves), make([]window.Request, crowdSaves)
	for i := range crowdSaves {
		c.saved++
		edits[i] = c.edit(author(c.saved * 7919 % c.windows)) // a prime apart
		requests[i] = c.request(strconv.Itoa(c.saved), saver)
	}
	edit, events := c.edit(saver), 0
	after := func([]window.Effect) {
		events++
		c.engine.NextWake()
		c.engine.Touched()
	}
	began := time.Now()
	for i := range crowdSaves {
		after(c.engine.Change(c.tick(), edits[i]))
		after(c.engine.Change(c.tick(), edit))
		after(c.engine.Register(c.tick(), requests[i]))
		effects := c.engine.CaughtUp(c.tick(), requests[i].UID)
		after(effects)
		if len(effects) != 1 {
			return 0, fmt.Errorf("a save led to %v", effects)
		}
		after(c.engine.Withdraw(c.tick(), requests[i].UID))
	}
	return nanoseconds(began, events), nil
}

// wakes do nothing. It returns the nanoseconds of one.
func (c *crowd) wakes() (float64, error) {
	began := time.Now()
	for range idleWakes {
		if effects := c.engine.Wake(c.now); effects != nil {
			return 0, fmt.Errorf("a wake led to %v", effects)
		}
		if _, ok := c.engine.NextWake(); !ok {
			return 0, errors.New("nothing is due, ever")
		}
	}
	return nanoseconds(began, idleWakes), nil
}

// nanoseconds since then, for one of so many.
func nanoseconds(then time.Time, many int) float64 {
	return float64(time.Since(then).Nanoseconds()) / float64(many)
}
