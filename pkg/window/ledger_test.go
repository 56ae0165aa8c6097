// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// ledger watches what goes into an engine and what comes out, and holds it to
// the promises of DESIGN 5 without knowing how the engine keeps them.
type ledger struct {
	// targets are the ones that there are, suspended those that were so before the
	// event.
	targets   map[types.NamespacedName]Target
	suspended map[types.NamespacedName]bool
	// pending are the changes that are in an open window, where is the name of it.
	// Versions count up over all changes.
	pending map[objectOfTarget]Change
	where   map[string]string
	// out says which write a version came out in; lastOut is the last of each object.
	out     map[string]int
	lastOut map[objectOfTarget]int
	writes  []Write
	// asked are the requests that were sent, in order.
	asked []*entry
	byUID map[types.UID]*entry
	// holders are the requests that windows were given to.
	holders map[string]*entry
	// saved is the highest version that a requester's saves held.
	saved map[authorOfTarget]int
	// edited is when the open windows took their last change.
	edited map[string]time.Time
}

type objectOfTarget struct {
	target types.NamespacedName
	object Object
}

type authorOfTarget struct {
	target types.NamespacedName
	author Author
}

type entry struct {
	Request

	attached, caughtUp, withdrawn bool
	attachedAt                    time.Time
	// gone counts how often it was let go of.
	gone int
}

// waits says whether it is taken in and has no window.
func (en *entry) waits() bool { return en.gone == 0 && !en.attached && !en.withdrawn }

// active says whether it waits or collects.
func (en *entry) active() bool { return en.gone == 0 && (en.attached || !en.withdrawn) }

func newLedger(targets map[types.NamespacedName]Target) *ledger {
	return &ledger{
		targets: targets, pending: map[objectOfTarget]Change{}, out: map[string]int{}, lastOut: map[objectOfTarget]int{},
		byUID: map[types.UID]*entry{}, holders: map[string]*entry{}, saved: map[authorOfTarget]int{}, edited: map[string]time.Time{},
	}
}

func (l *ledger) registered(r Request) {
	if l.byUID[r.UID] == nil {
		en := &entry{Request: r}
		l.byUID[r.UID] = en
		l.asked = append(l.asked, en)
	}
}

// effects books what an event at now led to.
func (l *ledger) effects(t *rapid.T, effects []Effect, now time.Time) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case Attached:
			l.attach(t, l.byUID[e.Request.UID], e.Window, now)
		case Closed:
			if l.suspended[e.Write.Target] || l.targets[e.Write.Target].Suspended && !wasDue(e.Write) {
				t.Fatalf("W18: a suspended target commits %+v", e.Write)
			}
			l.write(t, e.Write)
			if e.Write.Request != nil {
				l.letGo(t, e.Write.Request.UID)
			}
		case Discarded:
			l.write(t, e.Write)
		case Resolved:
			l.resolve(t, l.byUID[e.Request.UID], e.Reason, now)
		}
	}
	l.suspended = map[types.NamespacedName]bool{}
	for name, target := range l.targets {
		l.suspended[name] = target.Suspended
	}
}

// wasDue says whether a timer closed the window: then it did so before the event
// at hand.
func wasDue(w Write) bool {
	return slices.Contains([]Cause{CauseIdle, CauseMaxDuration, CauseRequest}, w.Cause)
}

func (l *ledger) attach(t *rapid.T, en *entry, window string, now time.Time) {
	if !en.waits() {
		t.Fatalf("attached although it may not: %+v", en)
	}
	if en.caughtUp && !en.AttachDeadline.After(now) {
		t.Fatalf("W8: %s takes a window at %s", en.UID, now)
	}
	if holder := l.holders[window]; holder != nil {
		t.Fatalf("W2: %s is given to %s and to %s", window, holder.UID, en.UID)
	}
	for _, earlier := range l.asked {
		if earlier == en {
			break
		}
		if earlier.Target == en.Target && earlier.waits() && (l.targets[en.Target].Shared || earlier.Author == en.Author) {
			t.Fatalf("W9: %s is attached before %s", en.UID, earlier.UID)
		}
	}
	en.attached, en.attachedAt, l.holders[window] = true, now, en
}

func (l *ledger) resolve(t *rapid.T, en *entry, reason string, now time.Time) {
	switch reason {
	case v1alpha1.ReasonSaveInProgress:
		if !l.active(en) {
			t.Fatalf("W10: %s is refused, for no request", en.UID)
		}
		if en.gone++; en.gone > 1 {
			t.Fatalf("%s is refused after it was let go of", en.UID)
		}
		return // not saved: no part of the order (W19)
	case v1alpha1.ReasonNoOpenWindow, v1alpha1.ReasonWindowMismatch:
		if !en.caughtUp || en.attached || en.AttachDeadline.After(now) {
			t.Fatalf("%s is given up at %s: %+v", en.UID, now, en)
		}
	}
	l.letGo(t, en.UID)
}

// active says whether another request of the same author waits or collects.
func (l *ledger) active(en *entry) bool {
	for _, other := range l.asked {
		if other != en && other.Target == en.Target && other.Author == en.Author && other.active() {
			return true
		}
	}
	return false
}

func (l *ledger) write(t *rapid.T, w Write) {
	number := len(l.writes)
	l.writes = append(l.writes, w)
	if w.Kind == EmptyWrite != (len(w.Changes) == 0) {
		t.Fatalf("W1, W14: a %s write with %d changes", w.Kind, len(w.Changes))
	}
	l.checkRequest(t, w)
	lowest, highest := 0, 0
	for i, c := range w.Changes {
		if earlier, twice := l.out[c.ResourceVersion]; twice {
			t.Fatalf("%s is in write %d and in write %d", c.ResourceVersion, earlier, number)
		}
		l.out[c.ResourceVersion] = number
		key, version := objectOfTarget{w.Target, c.Object}, version(t, c)
		if version < l.lastOut[key] {
			t.Fatalf("W3: version %d of %v is written after %d", version, c.Object, l.lastOut[key])
		}
		l.lastOut[key] = version
		highest = max(highest, version)
		if i == 0 || version < lowest {
			lowest = version
		}
	}
	if w.Request == nil || w.Kind == EmptyWrite {
		return
	}
	who := authorOfTarget{w.Target, w.Request.Author}
	if before := l.saved[who]; lowest < before {
		t.Fatalf("W19: %s holds version %d, an earlier save of %v holds %d", w.Request.Name, lowest, who, before)
	}
	l.saved[who] = highest
}

// checkRequest holds a write to W5: it carries the request that its window was
// given to, as it was asked, or none.
func (l *ledger) checkRequest(t *rapid.T, w Write) {
	holder := l.holders[w.Name]
	switch {
	case w.Kind == EmptyWrite:
		if en := l.byUID[w.Request.UID]; !en.waits() || !en.caughtUp || w.CutShort {
			t.Fatalf("W14: an empty commit for %+v", en)
		}
	case (holder == nil) != (w.Request == nil):
		t.Fatalf("W5: %s was given to %v and carries %v", w.Name, holder, w.Request)
	case holder == nil:
		if w.CutShort {
			t.Fatalf("%s is cut short for nobody", w.Name)
		}
		return
	case w.CutShort == holder.caughtUp:
		t.Fatalf("5.5: %s of %s is cut short: %v", w.Name, holder.UID, w.CutShort)
	}
	asked := l.byUID[w.Request.UID].Request
	if holder != nil {
		asked = holder.Request
	}
	if *w.Request != asked || w.Author != asked.Author {
		t.Fatalf("W5: %s by %v carries another request than was asked: %s", w.Name, w.Author, cmp.Diff(asked, *w.Request))
	}
}

// letGo checks that a request ends once, and after the earlier ones of its
// author on its target (W19).
func (l *ledger) letGo(t *rapid.T, uid types.UID) {
	en := l.byUID[uid]
	en.gone++
	if en.gone > 1 {
		t.Fatalf("%s was let go of %d times", uid, en.gone)
	}
	for _, earlier := range l.asked {
		if earlier == en {
			return
		}
		if earlier.Author == en.Author && earlier.Target == en.Target && earlier.active() {
			t.Fatalf("W19: %s is finished before %s", uid, earlier.UID)
		}
	}
}

// changes checks, after an event, that all changes that were handed in are in one
// write or in one open window; but for those which c, the change that the event
// handed in, replaced in theirs (W4).
func (l *ledger) changes(t *rapid.T, c *Change, open []Snapshot, now time.Time) {
	where := map[string]string{}
	for _, w := range open {
		for _, held := range w.Changes {
			where[held.ResourceVersion] = w.Name
		}
	}
	place := func(c Change) string {
		if number, ok := l.out[c.ResourceVersion]; ok {
			return l.writes[number].Name
		}
		return where[c.ResourceVersion]
	}
	for key, p := range l.pending {
		switch _, out := l.out[p.ResourceVersion]; {
		case out:
			delete(l.pending, key)
		case where[p.ResourceVersion] == l.where[p.ResourceVersion]:
		case c != nil && key == objectOfTarget{c.Target, c.Object} && place(*c) == l.where[p.ResourceVersion]:
			delete(l.pending, key)
		default:
			t.Fatalf("W4: %s of %v is in no write, and was not replaced in its window", p.ResourceVersion, p.Object)
		}
	}
	if c != nil {
		if _, out := l.out[c.ResourceVersion]; !out {
			l.pending[objectOfTarget{c.Target, c.Object}] = *c
		}
	}
	if len(where) != len(l.pending) {
		t.Fatalf("%v are in open windows, handed in were %v", where, l.pending)
	}
	for _, p := range l.pending {
		if where[p.ResourceVersion] == "" {
			t.Fatalf("%s of %v is in no write and in no window", p.ResourceVersion, p.Object)
		}
	}
	if c != nil {
		l.edited[place(*c)] = now
	}
	l.where = where
}

// standing checks what must hold after an event at now.
func (l *ledger) standing(t *rapid.T, open []Snapshot, now time.Time) {
	for _, en := range l.asked {
		if en.waits() && en.caughtUp && !en.AttachDeadline.After(now) {
			t.Fatalf("%s waits past its deadline", en.UID)
		}
	}
	windows, objects := map[authorOfTarget]bool{}, map[objectOfTarget]bool{}
	holders := map[types.UID]bool{}
	for _, w := range open {
		if at := (authorOfTarget{w.Target, w.Author}); windows[at] {
			t.Fatalf("W2: two open windows of %v", at)
		} else {
			windows[at] = true
		}
		if len(w.Changes) == 0 {
			t.Fatalf("W1: %s is open without a change", w.Name)
		}
		for _, c := range w.Changes {
			key := objectOfTarget{w.Target, c.Object}
			if objects[key] {
				t.Fatalf("W3: %v is in two open windows", key)
			}
			objects[key] = true
			if who := ownerOf(c); who != w.Author && !l.targets[w.Target].Shared {
				t.Fatalf("W2: a change by %v is in %s of %v", who, w.Name, w.Author)
			}
		}
		l.checkTimers(t, w, now)
		if w.Request == nil {
			continue
		}
		if holders[w.Request.UID] {
			t.Fatalf("W2: %s holds two windows", w.Request.UID)
		}
		holders[w.Request.UID] = true
		if w.Author.Unresolved {
			t.Fatalf("W20: %s claims an unresolved window", w.Request.UID)
		}
		if en := l.byUID[w.Request.UID]; en.gone > 0 || l.holders[w.Name] != en {
			t.Fatalf("W2: %s holds %s without having it", en.UID, w.Name)
		}
	}
}

// checkTimers checks that w is not open past a deadline, and that nobody waits
// who could have it.
func (l *ledger) checkTimers(t *rapid.T, w Snapshot, now time.Time) {
	target, holder := l.targets[w.Target], l.holders[w.Name]
	past := func(since time.Time, limit time.Duration) bool { return !since.Add(limit).After(now) }
	if holder == nil {
		edited := l.edited[w.Name]
		if target.IdleTimeout > 0 && past(edited, target.IdleTimeout) || target.MaxDuration > 0 && past(w.Opened, target.MaxDuration) {
			t.Fatalf("W5: %s is open past its target's timers: %+v", w.Name, w)
		}
		for _, en := range l.asked {
			if en.Target == w.Target && en.waits() && (target.Shared || en.Author == w.Author) {
				t.Fatalf("W7, W9: %s waits while %s is open", en.UID, w.Name)
			}
		}
		return
	}
	quiet := holder.attachedAt
	if edited := l.edited[w.Name]; edited.After(quiet) {
		quiet = edited
	}
	if holder.caughtUp && (past(holder.attachedAt, holder.MaxDuration) || holder.IdleTimeout > 0 && past(quiet, holder.IdleTimeout)) {
		t.Fatalf("W11: %s is open past the timers of %s: %+v", w.Name, holder.UID, w)
	}
}

// ownerOf is whose window a change is in, where each author has their own (W20).
func ownerOf(c Change) Author {
	if c.Author.Username == "" {
		return Unresolved
	}
	return c.Author
}

// closing checks the end, after Shutdown.
func (l *ledger) closing(t *rapid.T) {
	if len(l.pending) > 0 {
		t.Fatalf("in no write: %v", l.pending)
	}
	for _, en := range l.asked {
		if en.gone == 0 && en.attached {
			t.Fatalf("%s was attached and never let go of", en.UID)
		}
	}
}

func version(t *rapid.T, c Change) int {
	n, err := strconv.Atoi(c.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
