// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"reflect"
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
			"clock":        r.setBack,
			"burst":        r.burst,
			"look":         r.look,
			"restart":      r.restart,
			"touched":      func(t *rapid.T) { r.onlooker.drain(t, r.engine) },
		})
		r.end(t)
	})
}

type randomRun struct {
	engine   *Engine
	model    *model
	ledger   *ledger
	onlooker *onlooker
	kept     *kept
	// now is the clock; settled is the time of the last event.
	now, settled time.Time
	versions     int
	requests     int
}

func newRandomRun(t *rapid.T) *randomRun {
	maxBytes := rapid.SampledFrom([]int{0, 0, 8, 20}).Draw(t, "max bytes")
	names := 0
	targets := map[types.NamespacedName]Target{}
	r := &randomRun{
		engine: New(Config{MaxBytes: int64(maxBytes), NewName: func(types.NamespacedName, Author) string {
			names++
			return fmt.Sprintf("w%d", names)
		}}),
		model:    &model{targets: targets, known: map[types.UID]bool{}, maxBytes: maxBytes},
		ledger:   newLedger(targets),
		onlooker: newOnlooker(),
		kept:     newKept(),
		now:      time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
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

// same holds the engine to the model and to the promises.
func (r *randomRun) same(t *rapid.T, happened []Effect) {
	t.Helper()
	r.sameAfter(t, nil, happened)
}

// sameAfter is same for an event that may have handed a change in.
func (r *randomRun) sameAfter(t *rapid.T, c *Change, happened []Effect) {
	t.Helper()
	r.settled = r.now
	r.kept.effects(happened, r.now, func(name types.NamespacedName) bool { return r.ledger.targets[name].Shared })
	happened = outcomes(happened)
	if expected := r.model.take(); !reflect.DeepEqual(expected, happened) {
		t.Fatalf("-model +engine\n%s", cmp.Diff(expected, happened))
	}
	open := r.engine.Windows()
	r.ledger.effects(t, happened, r.now)
	r.ledger.changes(t, c, open, r.now)
	r.ledger.standing(t, open, r.now)
	r.onlooker.event(open)
	if due, ok := r.engine.NextWake(); ok && !due.After(r.now) {
		t.Fatalf("due at %s, not done at %s", due, r.now)
	}
}

// outcomes are the effects but for those that only say how far the engine has come,
// which Restore is held to.
func outcomes(effects []Effect) (outcomes []Effect) {
	for _, effect := range effects {
		switch effect.(type) {
		case Opened, Collected, Registered:
		default:
			outcomes = append(outcomes, effect)
		}
	}
	return outcomes
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
	// Few and whole, so that much falls due at the same instant.
	someSeconds = rapid.Map(rapid.IntRange(0, 5), func(n int) time.Duration { return time.Duration(n) * time.Second })
)

// burst is much at a time, of what leads somewhere together.
func (r *randomRun) burst(t *rapid.T) {
	events := []func(*rapid.T){
		r.change, r.change, r.change, r.request, r.request, r.caughtUp, r.caughtUp, r.late, r.late, r.wake, r.withdraw, r.setTarget,
	}
	for range rapid.IntRange(1, 40).Draw(t, "events") {
		events[rapid.IntRange(0, len(events)-1).Draw(t, "event")](t)
	}
}

func (r *randomRun) newChange(t *rapid.T, target types.NamespacedName, object Object) Change {
	r.versions++
	c := Change{
		Target: target, Object: object, ResourceVersion: strconv.Itoa(r.versions),
		Author: someAuthor.Draw(t, "author"), Operation: someOperation.Draw(t, "operation"),
	}
	if c.Operation != Delete {
		c.Manifest = make([]byte, rapid.IntRange(0, 12).Draw(t, "bytes"))
	}
	return c
}

func (r *randomRun) change(t *rapid.T) {
	c := r.newChange(t, someTarget.Draw(t, "target"), someObject.Draw(t, "object"))
	r.model.change(r.now, c)
	r.sameAfter(t, &c, r.engine.Change(r.now, c))
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
		if open := r.kept.requests[en.UID]; open != nil {
			open.CaughtUp = true
		}
		r.same(t, r.engine.CaughtUp(r.now, en.UID))
	}
}

func (r *randomRun) withdraw(t *rapid.T) {
	if en := r.earlier(t); en != nil {
		r.model.withdraw(r.now, en.UID)
		r.same(t, r.engine.Withdraw(r.now, en.UID))
		r.kept.withdraw(en.UID)
		en.withdrawn = true // what was due by now came before
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
	r.model.setTarget(r.now, target)
	r.same(t, r.engine.SetTarget(r.now, target))
}

func (r *randomRun) remove(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		return
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
	r.now = r.now.Add(someSeconds.Draw(t, "pause"))
}

// setBack lets the clock go back a little, as one does that is not monotonic.
func (r *randomRun) setBack(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		return
	}
	r.now = r.now.Add(-someSeconds.Draw(t, "back"))
}

// look compares what is open, timers included.
func (r *randomRun) look(t *rapid.T) {
	open := r.engine.Windows()
	if len(open) != len(r.model.windows) {
		t.Fatalf("%d windows are open, the model has %d", len(open), len(r.model.windows))
	}
	for i, w := range open {
		expected := r.model.windows[i]
		if w.Name != expected.name || w.Author != expected.author || w.Bytes != int64(r.model.size(expected.changes)) ||
			!w.Opened.Equal(expected.opened) || !w.Closes.Equal(r.model.closes(expected)) {
			t.Fatalf("open is %+v, the model has %+v", w, expected)
		}
		if (w.Request == nil) != (expected.request == nil) || w.Request != nil && *w.Request != expected.request.RequestRef {
			t.Fatalf("%s is held by %v, in the model by %v", w.Name, w.Request, expected.request)
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
	r.ledger.closing(t)
	r.onlooker.drain(t, r.engine)
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
	if len(e.windows)+len(e.requests)+len(e.released)+len(e.timers.entries)+e.touched.names.Len() > 0 {
		t.Fatalf("left behind: %+v", e)
	}
	for _, target := range e.targets {
		if len(target.windows)+len(target.objects)+len(target.waiting)+len(target.active) > 0 {
			t.Fatalf("left behind: %+v", target)
		}
	}
}
