// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// ledger watches what goes into an engine and what comes out, and holds it to
// the promises of DESIGN 5 without knowing how the engine keeps them.
type ledger struct {
	// in are the changes of Change, in order. Versions count up over all of them.
	in []Change
	// out says which write a version came out in; the last one out per object.
	out     map[string]int
	lastOut map[objectOfTarget]int
	writes  []Write
	// asked are the requests that were taken in, in order.
	asked []*entry
	byUID map[types.UID]*entry
}

type objectOfTarget struct {
	target types.NamespacedName
	object Object
}

type entry struct {
	Request

	attached, caughtUp, withdrawn bool
	// gone counts how often it was let go of.
	gone int
}

func newLedger() *ledger {
	return &ledger{out: map[string]int{}, lastOut: map[objectOfTarget]int{}, byUID: map[types.UID]*entry{}}
}

func (l *ledger) registered(r Request) {
	if l.byUID[r.UID] == nil {
		en := &entry{Request: r}
		l.byUID[r.UID] = en
		l.asked = append(l.asked, en)
	}
}

// effects books what an event led to.
func (l *ledger) effects(t *rapid.T, effects []Effect, suspended func(types.NamespacedName) bool) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case Attached:
			en := l.byUID[e.Request.UID]
			if en.attached || en.gone > 0 || en.withdrawn {
				t.Fatalf("attached although it may not: %+v", en)
			}
			en.attached = true
		case Closed:
			if suspended(e.Write.Target) {
				t.Fatalf("W18: a suspended target commits %+v", e.Write)
			}
			l.write(t, e.Write)
			if e.Write.Request != nil {
				l.letGo(t, e.Write.Request.UID)
			}
		case Discarded:
			l.write(t, e.Write)
		case Resolved:
			if e.Reason == v1alpha1.ReasonSaveInProgress {
				l.byUID[e.Request.UID].gone++ // refused, not saved: no part of the order (W19)
				continue
			}
			l.letGo(t, e.Request.UID)
		}
	}
}

func (l *ledger) write(t *rapid.T, w Write) {
	number := len(l.writes)
	l.writes = append(l.writes, w)
	if w.Kind == EmptyWrite != (len(w.Changes) == 0) {
		t.Fatalf("W1, W14: a %s write with %d changes", w.Kind, len(w.Changes))
	}
	for _, c := range w.Changes {
		if earlier, twice := l.out[c.ResourceVersion]; twice {
			t.Fatalf("%s is in write %d and in write %d", c.ResourceVersion, earlier, number)
		}
		l.out[c.ResourceVersion] = number
		key := objectOfTarget{w.Target, c.Object}
		if version := version(t, c); version < l.lastOut[key] {
			t.Fatalf("W3: version %d of %v is written after %d", version, c.Object, l.lastOut[key])
		}
		l.lastOut[key] = version(t, c)
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
		if earlier.Author == en.Author && earlier.Target == en.Target && earlier.gone == 0 && (!earlier.withdrawn || earlier.attached) {
			t.Fatalf("W19: %s is finished before %s", uid, earlier.UID)
		}
	}
}

// standing checks what must hold between events.
func (l *ledger) standing(t *rapid.T, e *Engine, now time.Time) {
	if due, ok := e.NextWake(); ok && !due.After(now) {
		t.Fatalf("due at %s, not done at %s", due, now)
	}
	for _, en := range l.asked {
		waits := en.gone == 0 && !en.attached && !en.withdrawn
		if waits && en.caughtUp && !en.AttachDeadline.After(now) {
			t.Fatalf("%s waits past its deadline", en.UID)
		}
	}
	type place struct {
		target types.NamespacedName
		author Author
	}
	windows, objects, holders := map[place]bool{}, map[objectOfTarget]bool{}, map[types.UID]bool{}
	for _, w := range e.Windows() {
		if at := (place{w.Target, w.Author}); windows[at] {
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
		}
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
		if en := l.byUID[w.Request.UID]; en.gone > 0 || !en.attached {
			t.Fatalf("W2: %s holds %s without having it", en.UID, w.Name)
		}
	}
}

// closing checks the end: every change is in one write, or was replaced by a
// later one to its object by the same author, with nothing of the object written
// in between (W4).
func (l *ledger) closing(t *rapid.T, shared func(version string) bool) {
	for i, c := range l.in {
		if _, ok := l.out[c.ResourceVersion]; ok {
			continue
		}
		next := slices.IndexFunc(l.in[i+1:], func(later Change) bool {
			return later.Target == c.Target && later.Object == c.Object
		})
		if next < 0 {
			t.Fatalf("%s of %v is in no write", c.ResourceVersion, c.Object)
		}
		replacement := l.in[i+1+next]
		if who, by := authorOf(c), authorOf(replacement); who != by && !shared(c.ResourceVersion) {
			t.Fatalf("W3: %s by %v was replaced by %s by %v", c.ResourceVersion, who, replacement.ResourceVersion, by)
		}
	}
	for _, en := range l.asked {
		if en.gone == 0 && en.attached {
			t.Fatalf("%s was attached and never let go of", en.UID)
		}
	}
}

func authorOf(c Change) Author {
	if c.Author.Username == "" {
		return Unresolved
	}
	return c.Author
}

func version(t *rapid.T, c Change) int {
	n, err := strconv.Atoi(c.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
