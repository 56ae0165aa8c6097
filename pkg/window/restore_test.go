// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// kept builds a State out of the effects of an Engine, as whoever wants to restore
// it has to.
type kept struct {
	targets  map[types.NamespacedName]TargetState
	windows  map[string]*OpenWindow
	requests map[types.UID]*OpenRequest
	// released are those that were let go of, withdrawn those whose objects are gone.
	released, withdrawn sets.Set[types.UID]
}

func newKept() *kept {
	return &kept{
		targets: map[types.NamespacedName]TargetState{}, windows: map[string]*OpenWindow{},
		requests: map[types.UID]*OpenRequest{}, released: sets.New[types.UID](), withdrawn: sets.New[types.UID](),
	}
}

func (k *kept) effects(effects []Effect, now time.Time, shared func(types.NamespacedName) bool) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case Opened:
			k.windows[e.Window] = &OpenWindow{Opened: e, At: now}
			k.targets[e.Target] = TargetState{Target: Target{Name: e.Target, Shared: shared(e.Target)}, LastOpened: e.Sequence}
		case Collected:
			w := k.windows[e.Window]
			w.Changes = append(slices.Clip(w.Changes), e.Change)
			if last := len(w.Changes) - 1; e.Index < last {
				w.Changes = slices.Clone(w.Changes[:last])
				w.Changes[e.Index] = e.Change
			}
			w.QuietSince = now
		case Registered:
			if known := k.requests[e.Request.UID]; known != nil {
				known.Registered = e
				continue
			}
			k.requests[e.Request.UID] = &OpenRequest{Registered: e}
		case Attached:
			w := k.windows[e.Window]
			w.Request, w.Attached, w.QuietSince = e.Request.UID, now, now
		case Closed:
			k.gone(e.Write)
			if e.Write.Request != nil {
				k.letGo(e.Write.Request.UID)
			}
		case Discarded:
			k.gone(e.Write)
		case Resolved:
			k.letGo(e.Request.UID)
		}
	}
}

func (k *kept) gone(w Write) { delete(k.windows, w.Name) }

func (k *kept) letGo(uid types.UID) {
	delete(k.requests, uid)
	if !k.withdrawn.Has(uid) {
		k.released.Insert(uid)
	}
}

// withdraw says that a request's object is gone.
func (k *kept) withdraw(uid types.UID) {
	k.released.Delete(uid)
	k.withdrawn.Insert(uid)
	for _, w := range k.windows {
		if w.Request == uid {
			return
		}
	}
	delete(k.requests, uid)
}

func (k *kept) state() State {
	s := State{Released: k.released.UnsortedList(), Targets: slices.Collect(maps.Values(k.targets))}
	for _, w := range k.windows {
		s.Windows = append(s.Windows, *w)
	}
	for _, r := range k.requests {
		s.Requests = append(s.Requests, *r)
	}
	return s
}

// restart goes on with a new Engine that knows what the effects of the old one said.
// What it does from here on is what the model does, which noticed nothing.
func (r *randomRun) restart(t *rapid.T) {
	r.model.settle(r.now) // what the old one would have done on its next call
	r.same(t, r.engine.Wake(r.now))
	for _, w := range r.model.windows {
		w.opened, w.attached, w.lastEdit = notAfter(w.opened, r.now), notAfter(w.attached, r.now), notAfter(w.lastEdit, r.now)
	}
	for _, w := range r.kept.windows { // once set right, a time stays so
		w.At, w.Attached, w.QuietSince = notAfter(w.At, r.now), notAfter(w.Attached, r.now), notAfter(w.QuietSince, r.now)
	}
	for name, target := range r.ledger.targets {
		// The timers are those of now, but who shares a window is said by SetTarget.
		known := r.kept.targets[name]
		if known.Name == (types.NamespacedName{}) {
			known.Shared = target.Shared
		}
		target.Shared, target.Suspended = known.Shared, false
		known.Target = target
		r.kept.targets[name] = known
	}
	engine, effects := Restore(r.engine.config, r.now, r.kept.state())
	r.engine, r.onlooker = engine, newOnlooker()
	var waiting []types.UID
	for _, effect := range effects {
		waiting = append(waiting, effect.(CatchUp).Request.UID)
	}
	var expected []types.UID
	for _, request := range r.model.requests {
		if !request.caughtUp {
			expected = append(expected, request.UID)
		}
	}
	if diff := cmp.Diff(expected, waiting); diff != "" {
		t.Fatalf("what has to catch up: -model +engine\n%s", diff)
	}
	// A time that was set right may have come.
	r.model.settle(r.now)
	r.same(t, r.engine.Wake(r.now))
	for name := range r.kept.targets {
		if target, exists := r.ledger.targets[name]; exists {
			r.same(t, r.engine.SetTarget(r.now, target))
		} else {
			r.same(t, r.engine.RemoveTarget(r.now, name))
		}
	}
	for uid := range r.kept.requests {
		if en := r.ledger.byUID[uid]; en.withdrawn {
			r.same(t, r.engine.Withdraw(r.now, uid))
		}
	}
}

// D1: a window reopens with the time that was left to it, and with the request that
// holds it; a deadline that passed meanwhile is settled at once.
func TestRestoredWindowsKeepTheirTime(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	prod, alice := targetName("prod"), Author{Username: "alice"}
	request := Request{
		RequestRef: RequestRef{Namespace: "shop", Name: "save", UID: "1"}, Target: prod, Author: alice, Message: "Prices",
		Attach: v1alpha1.AttachCurrentOrNext, AttachDeadline: start.Add(20 * time.Second), MaxDuration: 30 * time.Second,
	}
	change := Change{Target: prod, Object: Object{Resource: "configmaps", Namespace: "shop", Name: "a"}, Author: alice, Operation: Update, Manifest: []byte("a")}
	target := TargetState{Target: Target{Name: prod, IdleTimeout: time.Minute, MaxDuration: time.Hour}}
	open := OpenWindow{Opened: Opened{Window: "w", Target: prod, Author: alice, Sequence: 1}, At: start, QuietSince: start.Add(10 * time.Second), Changes: []Change{change}}
	held := open
	held.Request, held.Attached = request.UID, start.Add(5*time.Second)
	caughtUp := OpenRequest{Registered: Registered{Request: request, Sequence: 2}, CaughtUp: true}
	behind := caughtUp
	behind.CaughtUp = false
	tests := map[string]struct {
		state State
		now   time.Time
		// catchUp: the request has to; due is when the next thing happens, zero for never.
		catchUp bool
		due     time.Time
		closes  Cause
	}{
		"idle":                        {state: State{Windows: []OpenWindow{open}}, now: start.Add(30 * time.Second), due: start.Add(70 * time.Second)},
		"idle passed":                 {state: State{Windows: []OpenWindow{open}}, now: start.Add(2 * time.Minute), due: start.Add(70 * time.Second), closes: CauseIdle},
		"held":                        {state: State{Windows: []OpenWindow{held}, Requests: []OpenRequest{caughtUp}}, now: start.Add(30 * time.Second), due: start.Add(35 * time.Second)},
		"held, passed":                {state: State{Windows: []OpenWindow{held}, Requests: []OpenRequest{caughtUp}}, now: start.Add(40 * time.Second), due: start.Add(35 * time.Second), closes: CauseRequest},
		"held, passed, not caught up": {state: State{Windows: []OpenWindow{held}, Requests: []OpenRequest{behind}}, now: start.Add(40 * time.Second), catchUp: true},
		"waiting":                     {state: State{Requests: []OpenRequest{caughtUp}}, now: start.Add(12 * time.Second), due: start.Add(20 * time.Second)},
		"the clock was set back":      {state: State{Windows: []OpenWindow{open}}, now: start.Add(-time.Hour), due: start.Add(-time.Hour + time.Minute)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.state.Targets = []TargetState{target}
			e, effects := Restore(Config{}, test.now, test.state)
			if caught := len(effects) == 1 && cmp.Equal(effects[0], Effect(CatchUp{Request: request.RequestRef, Target: prod})); caught != test.catchUp || !caught && len(effects) > 0 {
				t.Errorf("effects are %v, catching up %v", effects, test.catchUp)
			}
			if due, ok := e.NextWake(); !due.Equal(test.due) || ok == test.due.IsZero() {
				t.Errorf("due at %v (%v), want %v", due, ok, test.due)
			}
			effects = e.Wake(test.now)
			switch {
			case test.closes == "" && len(effects) > 0, test.closes != "" && len(effects) != 1:
				t.Fatalf("waking does %v, want %q", effects, test.closes)
			case test.closes != "":
				write := effects[0].(Closed).Write
				if write.Cause != test.closes || !cmp.Equal(write.Changes, []Change{change}) || !write.Closed.Equal(test.now) || write.CutShort {
					t.Errorf("closed %+v", write)
				}
				if held := test.closes == CauseRequest; held && (write.Request == nil || write.Request.Message != "Prices") {
					t.Errorf("closed for %+v", write.Request)
				}
			}
		})
	}
}

// What belongs to no known target is left out, and a request that was let go of is
// not taken in again (W6).
func TestRestoreLeavesOutWhatIsOver(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	prod, alice := targetName("prod"), Author{Username: "alice"}
	request := Request{RequestRef: RequestRef{Namespace: "shop", Name: "save", UID: "1"}, Target: prod, Author: alice, AttachDeadline: now.Add(time.Minute)}
	e, effects := Restore(Config{}, now, State{
		Windows:  []OpenWindow{{Opened: Opened{Window: "w", Target: prod, Author: alice, Sequence: 1}}},
		Requests: []OpenRequest{{Registered: Registered{Request: request, Sequence: 2}}},
		Released: []types.UID{"2"},
	})
	if _, due := e.NextWake(); len(effects) > 0 || len(e.Windows()) > 0 || due {
		t.Errorf("effects %v, open %v, due %v", effects, e.Windows(), due)
	}
	e.SetTarget(now, Target{Name: prod})
	request.UID = "2"
	if effects := e.Register(now, request); len(effects) > 0 {
		t.Errorf("registered again: %v", effects)
	}
}
