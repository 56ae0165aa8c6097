// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// TestEngineDoesWhatTheModelSays gives random events to an Engine, to the naive
// model and to the ledger: all effects are equal, and the promises are kept.
func TestEngineDoesWhatTheModelSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRandomRun(t)
		t.Repeat(map[string]func(*rapid.T){
			"change":       r.change,
			"change again": r.change, // most of what happens
			"change more":  r.change,
			"request":      r.request,
			"save":         r.request,
			"repeat":       r.repeat,
			"caught up":    r.caughtUp,
			"caught  up":   r.caughtUp,
			"withdraw":     r.withdraw,
			"resync":       r.resync,
			"set target":   r.setTarget,
			"remove":       r.remove,
			"wake":         r.wake,
			"late":         r.late,
			"look":         r.look,
			"":             func(t *rapid.T) { r.ledger.standing(t, r.engine, r.settled) },
		})
		r.end(t)
	})
}

type randomRun struct {
	engine *Engine
	model  *model
	ledger *ledger
	// now is the clock; settled is the time of the last event.
	now, settled time.Time
	versions     int
	requests     int
	// sharedAt are the versions that were handed in while their target was shared.
	sharedAt map[string]bool
}

func newRandomRun(t *rapid.T) *randomRun {
	maxBytes := rapid.SampledFrom([]int{0, 0, 20}).Draw(t, "max bytes")
	names := 0
	r := &randomRun{
		engine: New(Config{MaxBytes: int64(maxBytes), NewName: func(types.NamespacedName, Author) string {
			names++
			return fmt.Sprintf("w%d", names)
		}}),
		model: &model{
			targets: map[types.NamespacedName]Target{}, known: map[types.UID]bool{}, maxBytes: maxBytes,
		},
		ledger:   newLedger(),
		now:      time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		sharedAt: map[string]bool{},
	}
	for _, name := range []string{"prod", "test"} {
		target := Target{Name: targetName(name), IdleTimeout: 3 * time.Second, MaxDuration: 8 * time.Second}
		target.Shared = rapid.Bool().Draw(t, "shared")
		r.engine.SetTarget(r.now, target)
		r.model.setTarget(r.now, target)
	}
	r.settled = r.now
	return r
}

// same holds the engine to the model.
func (r *randomRun) same(t *rapid.T, happened []Effect) {
	t.Helper()
	r.settled = r.now
	if diff := cmp.Diff(r.model.take(), happened); diff != "" {
		t.Fatalf("-model +engine\n%s", diff)
	}
	r.ledger.effects(t, happened, func(name types.NamespacedName) bool { return r.model.targets[name].Suspended })
}

var (
	someTarget = rapid.SampledFrom([]types.NamespacedName{targetName("prod"), targetName("prod"), targetName("test")})
	someUser   = rapid.SampledFrom([]Author{{Username: "alice"}, {Username: "bob"}, {Username: "carol"}})
	someAuthor = rapid.SampledFrom([]Author{{Username: "alice"}, {Username: "alice"}, {Username: "bob"}, {Username: "carol"}, Unresolved, {}})
	someObject = rapid.SampledFrom([]Object{
		{Resource: "configmaps", Namespace: "shop", Name: "a"},
		{Resource: "configmaps", Namespace: "shop", Name: "b"},
		{Resource: "configmaps", Namespace: "shop", Name: "c"},
		{Resource: "deployments", Group: "apps", Namespace: "shop", Name: "a"},
		{Resource: "deployments", Group: "apps", Namespace: "shop", Name: "b"},
	})
	someOperation = rapid.SampledFrom([]Operation{Create, Update, Update, Delete})
	someSeconds   = rapid.Map(rapid.IntRange(0, 6), func(n int) time.Duration { return time.Duration(n) * time.Second })
	somePause     = rapid.Map(rapid.IntRange(0, 8), func(n int) time.Duration { return time.Duration(n) * time.Second / 2 })
)

func (r *randomRun) newChange(t *rapid.T, target types.NamespacedName, object Object) Change {
	r.versions++
	c := Change{
		Target: target, Object: object, ResourceVersion: strconv.Itoa(r.versions),
		Author: someAuthor.Draw(t, "author"), Operation: someOperation.Draw(t, "operation"),
	}
	if c.Operation != Delete {
		c.Manifest = make([]byte, rapid.IntRange(0, 12).Draw(t, "bytes"))
	}
	r.sharedAt[c.ResourceVersion] = r.model.targets[target].Shared
	return c
}

func (r *randomRun) change(t *rapid.T) {
	c := r.newChange(t, someTarget.Draw(t, "target"), someObject.Draw(t, "object"))
	r.ledger.in = append(r.ledger.in, c)
	r.model.change(r.now, c)
	r.same(t, r.engine.Change(r.now, c))
}

func (r *randomRun) request(t *rapid.T) {
	r.requests++
	name := fmt.Sprintf("r%d", r.requests)
	asked := Request{
		RequestRef:          RequestRef{Namespace: "shop", Name: name, UID: types.UID(name)},
		Target:              someTarget.Draw(t, "target"),
		Author:              someUser.Draw(t, "author"),
		Message:             name,
		Attach:              rapid.SampledFrom([]v1alpha1.AttachPolicy{v1alpha1.AttachCurrentOrNext, v1alpha1.AttachNext}).Draw(t, "attach"),
		AttachDeadline:      r.now.Add(someSeconds.Draw(t, "timeout")),
		IdleTimeout:         someSeconds.Draw(t, "idle"),
		MaxDuration:         someSeconds.Draw(t, "max"),
		WhenNothingToCommit: rapid.SampledFrom([]v1alpha1.NothingToCommitPolicy{v1alpha1.NothingResolve, v1alpha1.NothingCommitEmpty}).Draw(t, "nothing"),
	}
	binding := r.engine.Binding(asked.Target, asked.Author, asked.Attach)
	// Binding looks at this moment; Register first does what is due by now.
	upToDate := r.settled.Equal(r.now)
	r.ledger.registered(asked)
	r.model.register(r.now, asked)
	happened := r.engine.Register(r.now, asked)
	r.same(t, happened)
	if upToDate {
		checkBinding(t, binding, happened)
	}
}

// checkBinding holds Binding to what Register then did.
func checkBinding(t *rapid.T, b Binding, happened []Effect) {
	attachedTo, refused := "", false
	for _, effect := range happened {
		switch e := effect.(type) {
		case Attached:
			attachedTo = e.Window
		case Resolved:
			refused = refused || e.Reason == v1alpha1.ReasonSaveInProgress
		}
	}
	if b.Window != attachedTo || (b.InProgress != nil) != refused {
		t.Fatalf("foreseen %+v, happened %v", b, happened)
	}
}

// earlier picks one of the requests that were sent, whatever became of it.
func (r *randomRun) earlier(t *rapid.T) *entry {
	if len(r.ledger.asked) == 0 {
		return nil
	}
	recent := r.ledger.asked[max(0, len(r.ledger.asked)-4):]
	return rapid.SampledFrom(recent).Draw(t, "request")
}

func (r *randomRun) repeat(t *rapid.T) {
	// Once its object is gone nobody sends a request any more.
	if en := r.earlier(t); en != nil && !en.withdrawn {
		r.model.register(r.now, en.Request)
		r.same(t, r.engine.Register(r.now, en.Request))
	}
}

func (r *randomRun) caughtUp(t *rapid.T) {
	if en := r.earlier(t); en != nil {
		en.caughtUp = true
		r.model.caughtUp(r.now, en.UID)
		r.same(t, r.engine.CaughtUp(r.now, en.UID))
	}
}

func (r *randomRun) withdraw(t *rapid.T) {
	if en := r.earlier(t); en != nil {
		r.wake(t)
		en.withdrawn = true
		r.model.withdraw(r.now, en.UID)
		r.same(t, r.engine.Withdraw(r.now, en.UID))
	}
}

func (r *randomRun) resync(t *rapid.T) {
	target := someTarget.Draw(t, "target")
	var changes []Change
	for _, object := range rapid.SliceOfNDistinct(someObject, 0, 3, rapid.ID[Object]).Draw(t, "objects") {
		changes = append(changes, r.newChange(t, target, object))
	}
	r.model.resync(r.now, target, changes)
	r.same(t, r.engine.Resync(r.now, target, changes))
}

func (r *randomRun) setTarget(t *rapid.T) {
	target := Target{
		Name:        someTarget.Draw(t, "target"),
		IdleTimeout: someSeconds.Draw(t, "idle"),
		MaxDuration: someSeconds.Draw(t, "max"),
		Shared:      rapid.IntRange(0, 3).Draw(t, "shared") == 0,
		Suspended:   rapid.IntRange(0, 4).Draw(t, "suspended") == 0,
	}
	r.wake(t) // what was due is committed before it is suspended
	r.model.setTarget(r.now, target)
	r.same(t, r.engine.SetTarget(r.now, target))
}

func (r *randomRun) remove(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.SkipNow()
	}
	name := someTarget.Draw(t, "target")
	r.model.removeTarget(r.now, name)
	r.same(t, r.engine.RemoveTarget(r.now, name))
}

// wake lets time pass to where the engine asked to be woken, if that is soon.
func (r *randomRun) wake(t *rapid.T) {
	if due, ok := r.engine.NextWake(); ok && due.After(r.now) && due.Before(r.now.Add(2*time.Second)) {
		r.now = due
	}
	r.model.settle(r.now)
	r.same(t, r.engine.Wake(r.now))
}

// late lets time pass without a wake: the next event finds what is overdue.
func (r *randomRun) late(t *rapid.T) {
	r.now = r.now.Add(somePause.Draw(t, "pause"))
}

// look compares what is open, timers included.
func (r *randomRun) look(t *rapid.T) {
	open := r.engine.Windows()
	if len(open) != len(r.model.windows) {
		t.Fatalf("%d windows are open, the model has %d", len(open), len(r.model.windows))
	}
	for i, w := range open {
		expected := r.model.windows[i]
		if w.Name != expected.name || w.Author != expected.author || w.Bytes != int64(r.model.size(expected.changes)) {
			t.Fatalf("open is %+v, the model has %+v", w, expected)
		}
		if diff := cmp.Diff(expected.changes, w.Changes); diff != "" {
			t.Fatalf("-model +engine\n%s", diff)
		}
	}
}

// end shuts down, and looks at what is left: nothing but who waits.
func (r *randomRun) end(t *rapid.T) {
	r.model.shutdown(r.now)
	r.same(t, r.engine.Shutdown(r.now))
	r.ledger.closing(t, func(version string) bool { return r.sharedAt[version] })
	for _, en := range r.ledger.asked {
		if en.withdrawn {
			continue
		}
		en.withdrawn = true
		r.model.withdraw(r.now, en.UID)
		r.same(t, r.engine.Withdraw(r.now, en.UID))
	}
	if open := r.engine.Windows(); len(open) > 0 {
		t.Fatalf("still open: %+v", open)
	}
	e := r.engine
	if len(e.requests)+len(e.released)+len(e.timers.entries) > 0 {
		t.Fatalf("left behind: %v %v %v", e.requests, e.released, e.timers.entries)
	}
	for _, target := range e.targets {
		if len(target.windows)+len(target.objects)+len(target.waiting)+len(target.active) > 0 {
			t.Fatalf("left behind: %+v", target)
		}
	}
}
