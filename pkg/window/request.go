// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"container/list"
	"time"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// request is a CommitRequest that waits for a window or holds one.
type request struct {
	Request

	target *target
	// seq is the order of registration, on the same count as windows' (W9, W12).
	seq uint64
	// window that it holds; nil while it waits.
	window *window
	// queued is its place among those that wait for the same window.
	queued *list.Element
	// caughtUp: from here on its own timers count (DESIGN 5.5).
	caughtUp bool
	// mismatch: a window that it cannot have was open when it registered, or before
	// its target was switched (W12; see target.mismatched).
	mismatch bool
	// withdrawn: its object is gone, but its window keeps the message (W17).
	withdrawn bool
	timer     timer
}

var _ timed = (*request)(nil)

// deadline is when it stops waiting. What is being caught up came before the
// request, so until that is over no deadline counts.
func (r *request) deadline() (time.Time, bool) {
	return r.AttachDeadline, r.window == nil && r.caughtUp
}

func (r *request) rank() (int, uint64) { return 0, r.seq }

// requester is who asks, whatever else the author says: nobody can ask in the
// name of unresolved changes (W20).
func (r *request) requester() Author { return Author{Username: r.Author.Username} }

// next says whether it refuses the window that is open already (W7).
func (r *request) next() bool { return r.Attach == v1alpha1.AttachNext }

// refused is W10: the request that keeps the author from saving now.
func (t *target) refused(a Author, attach v1alpha1.AttachPolicy) *request {
	earlier := t.active[Author{Username: a.Username}]
	switch {
	case earlier == nil:
		return nil
	case earlier.window != nil && attach == v1alpha1.AttachNext:
		return nil
	}
	return earlier
}

// admit takes r in: it attaches to the window that is open (W7), or waits.
func (e *Engine) admit(t *target, r *request, now time.Time) {
	key := t.key(r.requester())
	if w := t.windows[key]; w != nil && r.next() {
		e.close(w, CauseNext, now)
	}
	e.seq++
	r.seq, r.target = e.seq, t
	r.timer.owner = r
	e.requests[r.UID] = r
	t.active[r.requester()] = r

	own := t.windows[key]
	free := own != nil && own.request == nil
	if !free {
		foreign := len(t.windows)
		if own != nil {
			foreign-- // claimed by another request: contention, not mismatch (W12)
		}
		r.mismatch = foreign > 0
		t.enqueue(key, r)
	}
	e.emit(Registered{Request: r.Request, Sequence: r.seq, Mismatch: r.mismatch})
	if free {
		e.attach(own, r, now)
	}
	e.emit(CatchUp{Request: r.RequestRef, Target: r.Target})
}

// attach gives w to r, whose timers replace those of the target (W11).
func (e *Engine) attach(w *window, r *request, now time.Time) {
	r.target.dequeue(r)
	r.window, w.request = w, r
	w.attached, w.quietSince = now, now
	e.timers.stop(&r.timer)
	e.timers.schedule(&w.timer)
	e.touched.add(w)
	e.emit(Attached{Request: r.RequestRef, Window: w.name})
}

// expire ends the wait of r (W8, W12, W14).
func (e *Engine) expire(r *request, now time.Time) {
	switch {
	case r.target.mismatched(r):
		e.resolve(r, v1alpha1.ReasonWindowMismatch)
	case r.WhenNothingToCommit == v1alpha1.NothingCommitEmpty:
		asked := r.Request
		e.emit(Closed{Write: Write{
			Name:    e.newName(r.Target, r.requester()),
			Kind:    EmptyWrite,
			Target:  r.Target,
			Author:  r.requester(),
			Request: &asked,
			Cause:   CauseRequest,
			Opened:  now,
			Closed:  now,
		}})
		e.release(r)
	default:
		e.resolve(r, v1alpha1.ReasonNoOpenWindow)
	}
}

// resolve finishes r without a commit.
func (e *Engine) resolve(r *request, reason string) {
	e.emit(Resolved{Request: r.RequestRef, Reason: reason})
	e.release(r)
}

// release lets go of r: from here on it is the shell's. Only its UID stays, so
// that sending it again changes nothing (W6).
func (e *Engine) release(r *request) {
	e.timers.stop(&r.timer)
	if r.target != nil {
		r.target.dequeue(r)
		if r.target.active[r.requester()] == r {
			delete(r.target.active, r.requester())
		}
	}
	delete(e.requests, r.UID)
	if !r.withdrawn {
		e.released.Insert(r.UID)
	}
}
