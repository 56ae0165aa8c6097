// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is what an Engine goes on from: all that the effects of another one said, as
// far as it is not over.
type State struct {
	Targets  []TargetState
	Windows  []OpenWindow
	Requests []OpenRequest
	// Released are the requests that the other engine had let go of, and whose objects
	// still exist.
	Released []types.UID
}

// TargetState is a target as the windows and requests of a State know it.
type TargetState struct {
	Target
	// LastOpened is the Sequence of its last Opened.
	LastOpened uint64
}

// OpenWindow is a window that was open.
type OpenWindow struct {
	Opened
	// At is when it opened, QuietSince when it collected last.
	At, QuietSince time.Time
	// Changes in the order of their Index.
	Changes []Change
	// Request that holds it since Attached; empty while it is unclaimed.
	Request  types.UID
	Attached time.Time
}

// OpenRequest is a request that waited or held an open window.
type OpenRequest struct {
	Registered
	CaughtUp bool
}

// Restore makes an Engine that goes on from a state, whose windows and requests
// keep the time that was left to them (D1): what fell due meanwhile is done on the
// next call that takes a time. Requests that had not caught up have to do so now,
// which is what the effects say. Windows and requests of unknown targets are left
// out.
//
// A time of the state that is yet to come was noted before the clock was set back,
// and counts as now.
func Restore(c Config, now time.Time, s State) (*Engine, []Effect) {
	e := New(c)
	e.released.Insert(s.Released...)
	for _, t := range s.Targets {
		known := newTarget(t.Target)
		known.lastOpened = t.LastOpened
		e.targets[t.Name] = known
		e.seq = max(e.seq, t.LastOpened)
	}
	requests := slices.SortedFunc(slices.Values(s.Requests), func(a, b OpenRequest) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for _, r := range requests {
		e.restoreRequest(r)
	}
	windows := slices.SortedFunc(slices.Values(s.Windows), func(a, b OpenWindow) int { return cmp.Compare(a.Sequence, b.Sequence) })
	sizes := map[types.NamespacedName]int{}
	for i := range windows {
		sizes[windows[i].Target] += len(windows[i].Changes)
	}
	for name, size := range sizes {
		if t := e.targets[name]; t != nil {
			t.objects = make(map[Object]holding, size)
		}
	}
	for i := range windows {
		e.restoreWindow(&windows[i], now)
	}
	for _, asked := range requests {
		r := e.requests[asked.Request.UID]
		if r == nil {
			continue
		}
		if r.window == nil {
			r.target.enqueue(r.target.key(r.requester()), r)
			e.timers.schedule(&r.timer)
		}
		if !r.caughtUp {
			e.emit(CatchUp{Request: r.RequestRef, Target: r.Target})
		}
	}
	return e, e.flush()
}

func (e *Engine) restoreRequest(s OpenRequest) {
	t := e.targets[s.Request.Target]
	if t == nil {
		return
	}
	r := &request{Request: s.Request, target: t, seq: s.Sequence, caughtUp: s.CaughtUp, mismatch: s.Mismatch}
	r.timer.owner = r
	e.requests[r.UID] = r
	t.active[r.requester()] = r
	e.seq = max(e.seq, s.Sequence)
}

func (e *Engine) restoreWindow(s *OpenWindow, now time.Time) {
	t := e.targets[s.Target]
	if t == nil {
		return
	}
	w := &window{
		name: s.Window, target: t, key: s.Author, seq: s.Sequence, changes: s.Changes,
		opened: notAfter(s.At, now), quietSince: notAfter(s.QuietSince, now),
	}
	w.timer.owner = w
	for i := range w.changes {
		w.bytes += int64(len(w.changes[i].Manifest))
		t.objects[w.changes[i].Object] = holding{window: w, index: i}
	}
	if r := e.requests[s.Request]; r != nil {
		r.window, w.request, w.attached = w, r, notAfter(s.Attached, now)
	}
	t.windows[w.key] = w
	e.windows[w.name] = w
	e.seq = max(e.seq, s.Sequence)
	e.timers.schedule(&w.timer)
	e.touched.open(w)
}

// notAfter is t by now's clock, which goes on evenly when the time of day is set
// anew, and not later than now.
func notAfter(t, now time.Time) time.Time { return now.Add(min(t.Sub(now), 0)) }
