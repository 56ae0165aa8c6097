// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestTouched: what touches a window, and that each is named once, in the order
// of the last touch. Each step is drained.
func TestTouched(t *testing.T) {
	s := newScenario()
	for _, step := range []struct {
		name     string
		commands []string
		touched  []string
	}{
		{"nothing yet", []string{"target idle=1m max=1h"}, nil},
		{"opened", []string{"change alice cm/a"}, []string{"w1"}},
		{"nothing more", []string{"wake"}, nil},
		{"grew", []string{"change alice cm/b"}, []string{"w1"}},
		{"others are left out", []string{"change bob cm/x"}, []string{"w2"}},
		{"once, by the last touch", []string{"change alice cm/a", "change bob cm/y", "change alice cm/a"}, []string{"w2", "w1"}},
		{"claimed", []string{"request alice r1"}, []string{"w1"}},
		{"again is nothing new", []string{"request alice r1"}, nil},
		{"waiting touches no window", []string{"request carol r2 timeout=1m"}, nil},
		{"a timer begins", []string{"caughtup r1"}, []string{"w1"}},
		{"begins once", []string{"caughtup r1", "caughtup r2"}, nil},
		{"the holder is gone, its window is as it was (W17)", []string{"withdraw r1"}, nil},
		{"the target's timers are those of who is not claimed", []string{"target idle=2m max=1h"}, []string{"w2"}},
		{"timers that do not decide", []string{"target idle=2m max=2h"}, nil},
		{"closed by its timer", []string{"advance 2s"}, []string{"w1"}},
		{"taken: closed and opened", []string{"change dave cm/x"}, []string{"w2", "w3"}},
		{"opened and closed unseen", []string{"change erin cm/e", "change dave cm/e"}, []string{"w3"}},
		{"opened and claimed at once", []string{"change carol cm/c"}, []string{"w5"}},
		{"a resync closes all, and is no window", []string{"resync cm/z"}, []string{"w3", "w5"}},
		{"discarded without a window", []string{"target suspended", "change alice cm/a"}, nil},
		{"resumed", []string{"target", "change alice cm/a", "change bob cm/b"}, []string{"w7", "w8"}},
		{"suspended: discarded", []string{"target suspended"}, []string{"w7", "w8"}},
		{"removed before anybody saw it", []string{"target", "change alice cm/a", "remove"}, nil},
	} {
		for _, command := range step.commands {
			s.play(t, command)
		}
		if diff := cmp.Diff(step.touched, s.engine.Touched()); diff != "" {
			t.Errorf("%s: -expected +happened\n%s", step.name, diff)
		}
		if again := s.engine.Touched(); again != nil {
			t.Errorf("%s: touched again: %v", step.name, again)
		}
	}
}

// TestTouchedIsBounded: what nobody drains does not pile up.
func TestTouchedIsBounded(t *testing.T) {
	e, now := New(Config{}), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e.SetTarget(now, Target{Name: targetName("prod")})
	edit := func(author, object string) {
		c := parseChange(object)
		c.Target, c.Author = targetName("prod"), Author{Username: author}
		e.Change(now, c)
	}
	edit("alice", "cm/a")
	seen := e.Touched()
	for i := range 1000 {
		edit(fmt.Sprintf("author-%d", i), "cm/b") // takes it from the one before
		edit("alice", "cm/a")
	}
	if kept := e.touched.names.Len(); kept != 2 {
		t.Errorf("%d names are kept for one window that was open and two that are", kept)
	}
	open := e.Windows()
	if touched := e.Touched(); !slices.Equal(touched, []string{open[1].Name, seen[0]}) {
		t.Errorf("touched were %v, open are %+v", touched, open)
	}
}

func TestWindow(t *testing.T) {
	s := newScenario()
	s.play(t, "target\nchange alice cm/a\nrequest alice r1\nchange bob cm/b")
	for _, open := range s.engine.Windows() {
		found, ok := s.engine.Window(open.Name)
		if diff := cmp.Diff(open, found); !ok || diff != "" {
			t.Errorf("%s: found %v, -listed +found\n%s", open.Name, ok, diff)
		}
	}
	s.play(t, "resync cm/c")
	for _, name := range []string{"w1", "w2", "w3", "unknown", ""} {
		if found, ok := s.engine.Window(name); ok || !cmp.Equal(found, Snapshot{}) {
			t.Errorf("%q is open: %+v", name, found)
		}
	}
}

// onlooker holds Touched and Window to what Windows shows after each event.
type onlooker struct {
	// seen are the windows that were open at the last drain, open those after the last
	// event.
	seen, open map[string]Snapshot
	// touched says after which event a window differed last from what it was before.
	touched map[string]int
	events  int
}

func newOnlooker() *onlooker {
	return &onlooker{seen: map[string]Snapshot{}, open: map[string]Snapshot{}, touched: map[string]int{}}
}

// event takes what is open after one.
func (o *onlooker) event(windows []Snapshot) {
	o.events++
	before := o.open
	o.open = map[string]Snapshot{}
	for _, w := range windows {
		o.open[w.Name] = w
		if !reflect.DeepEqual(before[w.Name], w) {
			o.touched[w.Name] = o.events
		}
	}
	for name := range before {
		if _, ok := o.open[name]; !ok {
			o.touched[name] = o.events
		}
	}
}

// drain compares.
func (o *onlooker) drain(t *rapid.T, e *Engine) {
	if kept := e.touched.names.Len(); kept > len(o.seen)+len(o.open) {
		t.Fatalf("%d names are kept of %d windows then and %d now", kept, len(o.seen), len(o.open))
	}
	last, named := 0, map[string]bool{}
	for _, name := range e.Touched() {
		if named[name] || o.touched[name] < last {
			t.Fatalf("%s is named twice, or too late: %v", name, o.touched)
		}
		named[name], last = true, o.touched[name]
		if last == 0 {
			t.Fatalf("%s is as it was", name)
		}
		found, ok := e.Window(name)
		expected, open := o.open[name]
		if diff := cmp.Diff(expected, found); ok != open || diff != "" {
			t.Fatalf("%s: open is %v; -listed +found\n%s", name, ok, diff)
		}
	}
	for name := range o.touched {
		_, was := o.seen[name]
		if _, is := o.open[name]; (was || is) != named[name] {
			t.Fatalf("%s was open: %v, is open: %v, is named: %v", name, was, is, named[name])
		}
	}
	o.seen, o.touched = o.open, map[string]int{}
}
