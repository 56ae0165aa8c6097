// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// Config is what an Engine is made with.
type Config struct {
	// NewName names a window or a write. It must not repeat itself, and its results
	// should be valid object names: windows are served under them. Nil: the target's
	// name and a count, which starts anew with each Engine.
	NewName func(target types.NamespacedName, author Author) string
	// MaxBytes of content that a window holds; a change that would exceed it closes
	// the window first, and a change that exceeds it alone has a window of its own.
	// 0: no limit.
	MaxBytes int64
}

// Engine decides which changes are committed together, and for whom. It holds
// any number of targets. Not safe for concurrent use: the caller locks.
//
// Each method that takes a time first does all that fell due by then, and
// returns that and its own effects in the order in which they are to be carried
// out. The time is the time of the call, and should not go back.
type Engine struct {
	config   Config
	targets  map[types.NamespacedName]*target
	requests map[types.UID]*request
	// windows are the open ones of all targets, by name.
	windows map[string]*window
	touched touched
	// released are the requests that were let go of and whose objects still exist.
	released sets.Set[types.UID]
	timers   timers
	// seq counts the openings of windows and the registrations of requests.
	seq uint64
	// named counts the names that were given without Config.NewName.
	named   uint64
	effects []Effect
}

// New makes an Engine without targets.
func New(c Config) *Engine {
	return &Engine{
		config:   c,
		targets:  map[types.NamespacedName]*target{},
		requests: map[types.UID]*request{},
		windows:  map[string]*window{},
		released: sets.New[types.UID](),
	}
}

// SetTarget makes a target known, or changes it. New timers count for windows
// that are open already and not claimed. Suspending it discards its open
// windows and fails its requests (W18); after resuming it the caller resyncs.
// Switching Shared closes its windows.
func (e *Engine) SetTarget(now time.Time, desired Target) []Effect {
	e.advance(now)
	t := e.targets[desired.Name]
	if t == nil {
		e.targets[desired.Name] = newTarget(desired)
		return e.flush()
	}
	if t.Target == desired {
		return e.flush()
	}
	switch {
	case desired.Suspended:
		e.closeAll(t, CauseSuspended, now)
		e.resolveWaiting(t, v1alpha1.ReasonTargetSuspended)
	case desired.Shared != t.Shared:
		e.closeAll(t, CauseTargetChanged, now)
	}
	if desired.Shared != t.Shared {
		t.share(desired.Shared)
		for _, r := range t.waitingInOrder() {
			e.emit(Registered{Request: r.Request, Sequence: r.seq, Mismatch: r.mismatch}) // what it noted is its own now
		}
	}
	e.retime(t, desired)
	e.advance(now)
	return e.flush()
}

// RemoveTarget closes the windows of a target, whose writes still go out, fails
// the requests that wait, and forgets it.
func (e *Engine) RemoveTarget(now time.Time, name types.NamespacedName) []Effect {
	e.advance(now)
	if t := e.targets[name]; t != nil {
		e.closeAll(t, CauseTargetDeleted, now)
		e.resolveWaiting(t, v1alpha1.ReasonTargetDeleted)
		delete(e.targets, name)
	}
	return e.flush()
}

// Change takes one change in. Changes to one object must come in the order in
// which the cluster stored them. A change to a suspended or unknown target is
// returned as Discarded: a resync brings it in later, if at all.
func (e *Engine) Change(now time.Time, c Change) []Effect {
	e.advance(now)
	t := e.targets[c.Target]
	if t == nil || t.Suspended {
		e.discard(t, Write{Kind: WindowWrite, Target: c.Target, Author: c.Author, Changes: []Change{c}, Opened: now, Closed: now})
		return e.flush()
	}
	e.collect(t, c, now)
	e.advance(now) // zero max duration closes at once (W11)
	return e.flush()
}

// Register takes a request in, in the order in which the requests were created.
// Its target must be known by then. A UID that was registered before changes
// nothing (W6). A request that is taken in (all but those that are Resolved at
// once) comes with a CatchUp, to be answered by CaughtUp whatever happens.
func (e *Engine) Register(now time.Time, asked Request) []Effect {
	e.advance(now)
	if e.requests[asked.UID] != nil || e.released.Has(asked.UID) {
		return e.flush()
	}
	r, t := &request{Request: asked}, e.targets[asked.Target]
	switch {
	case t == nil:
		e.resolve(r, v1alpha1.ReasonTargetDeleted)
	case t.Suspended:
		e.resolve(r, v1alpha1.ReasonTargetSuspended)
	case t.refused(r.Author, r.Attach) != nil:
		e.resolve(r, v1alpha1.ReasonSaveInProgress)
	default:
		e.admit(t, r, now)
	}
	return e.flush()
}

// Withdraw says that a request's object is gone. One that waits is dropped
// without a word; one that is attached still has its window committed under its
// message (W17). The UID is forgotten: the caller tells of each deletion, also
// of requests that were finished.
func (e *Engine) Withdraw(now time.Time, uid types.UID) []Effect {
	e.advance(now)
	if r := e.requests[uid]; r != nil {
		r.withdrawn = true
		if r.window == nil {
			e.release(r)
		}
	}
	e.released.Delete(uid)
	return e.flush()
}

// CaughtUp says that all which came before the request was handed in, or that
// the bound for proving so ran out (DESIGN 5.5). From here on the request's
// timers count, and what is due of them is done on this very call.
func (e *Engine) CaughtUp(now time.Time, uid types.UID) []Effect {
	if r := e.requests[uid]; r != nil && !r.caughtUp {
		r.caughtUp = true
		if r.window != nil {
			e.timers.schedule(&r.window.timer)
			e.touched.add(r.window)
		} else {
			e.timers.schedule(&r.timer)
		}
	}
	e.advance(now)
	return e.flush()
}

// Resync closes all windows of a target and then writes what a complete list
// showed to differ from Git (W13, C9), the last of several changes to an object.
// Without changes there is nothing to write, and nobody's window is cut short.
func (e *Engine) Resync(now time.Time, name types.NamespacedName, changes []Change) []Effect {
	e.advance(now)
	if len(changes) == 0 {
		return e.flush()
	}
	write := Write{Kind: ResyncWrite, Target: name, Changes: lastOfEach(changes), Cause: CauseResync, Opened: now, Closed: now}
	t := e.targets[name]
	if t == nil || t.Suspended {
		e.discard(t, write)
		return e.flush()
	}
	e.closeAll(t, CauseResync, now)
	write.Name = e.newName(name, Author{})
	e.emit(Closed{Write: write})
	return e.flush()
}

// Wake does what fell due.
func (e *Engine) Wake(now time.Time) []Effect {
	e.advance(now)
	return e.flush()
}

// Shutdown closes all windows. Requests that wait stay as they are: they are
// stored, and the next process registers them again.
func (e *Engine) Shutdown(now time.Time) []Effect {
	e.advance(now)
	for _, w := range e.inOrder() {
		e.close(w, CauseShutdown, now)
	}
	return e.flush()
}

// NextWake is when Wake has something to do next, unless an event comes first;
// false when nothing has a deadline. It may be in the past.
func (e *Engine) NextWake() (time.Time, bool) {
	if t := e.timers.next(); t != nil {
		return t.due, true
	}
	return time.Time{}, false
}

// Binding is what would become of a request if it were registered now.
type Binding struct {
	// Window that it would attach to; empty if it would wait.
	Window string
	// InProgress is the earlier save that it would be refused for (W10).
	InProgress *RequestRef
}

// Binding looks at what Register would do, and changes nothing.
func (e *Engine) Binding(name types.NamespacedName, a Author, attach v1alpha1.AttachPolicy) Binding {
	t := e.targets[name]
	if t == nil {
		return Binding{}
	}
	if earlier := t.refused(a, attach); earlier != nil {
		ref := earlier.RequestRef
		return Binding{InProgress: &ref}
	}
	w := t.windows[t.key(Author{Username: a.Username})]
	if w == nil || w.request != nil || attach == v1alpha1.AttachNext {
		return Binding{}
	}
	return Binding{Window: w.name}
}

// advance does what fell due until now, in the order in which it did (W8).
func (e *Engine) advance(now time.Time) {
	for {
		t := e.timers.next()
		if t == nil || t.due.After(now) {
			return
		}
		switch owner := t.owner.(type) {
		case *request:
			e.expire(owner, now)
		case *window:
			e.close(owner, owner.cause(), now)
		}
	}
}

// retime makes t the desired target, whose timers count for what is open.
func (e *Engine) retime(t *target, desired Target) {
	open := t.inOrder()
	closed := make([]time.Time, len(open))
	for i, w := range open {
		closed[i] = w.closes()
	}
	t.Target = desired
	for i, w := range open {
		e.timers.schedule(&w.timer)
		if !w.closes().Equal(closed[i]) {
			e.touched.add(w)
		}
	}
}

func (e *Engine) closeAll(t *target, cause Cause, now time.Time) {
	for _, w := range t.inOrder() {
		e.close(w, cause, now)
	}
}

func (e *Engine) resolveWaiting(t *target, reason string) {
	for _, r := range t.waitingInOrder() {
		e.resolve(r, reason)
	}
}

// discard returns a write that no target takes.
func (e *Engine) discard(t *target, w Write) {
	w.Cause = CauseTargetDeleted
	if t != nil {
		w.Cause = CauseSuspended
	}
	e.emit(Discarded{Write: w})
}

func (e *Engine) emit(effect Effect) { e.effects = append(e.effects, effect) }

// flush hands the collected effects over.
func (e *Engine) flush() []Effect {
	effects := e.effects
	e.effects = nil
	return effects
}

func (e *Engine) newName(target types.NamespacedName, a Author) string {
	if e.config.NewName != nil {
		return e.config.NewName(target, a)
	}
	e.named++
	return fmt.Sprintf("%s-%d", target.Name, e.named)
}

// lastOfEach keeps the last change to each object, where the object was first
// seen (W4).
func lastOfEach(changes []Change) []Change {
	places := make(map[Object]int, len(changes))
	kept := make([]Change, 0, len(changes))
	for _, c := range changes {
		if i, ok := places[c.Object]; ok {
			kept[i] = c
			continue
		}
		places[c.Object] = len(kept)
		kept = append(kept, c)
	}
	return kept
}
