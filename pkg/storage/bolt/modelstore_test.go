// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// modelObject is one object of a modelStore.
type modelObject struct {
	label   string
	rev     int
	expires time.Time // zero: never
}

// modelEvent is one write.
type modelEvent struct {
	kind watch.EventType
	name string
	// label of the object as it is after the write, or was before a deletion.
	label string
}

// modelStore is what one resource should be: every state it ever had, and every
// event. Revisions count from 1, the empty state.
type modelStore struct {
	states    []map[string]modelObject // index: revision
	events    []modelEvent             // index: revision
	compacted int
}

func newModelStore() *modelStore {
	return &modelStore{states: []map[string]modelObject{{}, {}}, events: make([]modelEvent, 2)}
}

func (m *modelStore) revision() int                   { return len(m.states) - 1 }
func (m *modelStore) current() map[string]modelObject { return m.states[m.revision()] }

// put writes an object; that nothing changes is for the caller to know.
func (m *modelStore) put(name, label string, expires time.Time) {
	next, rev, kind := maps.Clone(m.current()), len(m.states), watch.Added
	if _, exists := next[name]; exists {
		kind = watch.Modified
	}
	next[name] = modelObject{label: label, rev: rev, expires: expires}
	m.states, m.events = append(m.states, next), append(m.events, modelEvent{kind, name, label})
}

func (m *modelStore) remove(name string) {
	next := maps.Clone(m.current())
	label := next[name].label
	delete(next, name)
	m.states, m.events = append(m.states, next), append(m.events, modelEvent{watch.Deleted, name, label})
}

// expire deletes what is due, the earliest first.
func (m *modelStore) expire(now time.Time) {
	var due []string
	for name, o := range m.current() {
		if !o.expires.IsZero() && !o.expires.After(now) {
			due = append(due, name)
		}
	}
	state := m.current()
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(state[a].expires.Compare(state[b].expires), cmp.Compare(a, b))
	})
	for _, name := range due {
		m.remove(name)
	}
}

// list shows what a list at rev does, of the names after the given one: all that
// have the label, "" for every object.
func (m *modelStore) list(rev int, after, label string) []string {
	found := []string{}
	for _, name := range slices.Sorted(maps.Keys(m.states[rev])) {
		if o := m.states[rev][name]; name > after && (label == "" || o.label == label) {
			found = append(found, fmt.Sprintf("%s %s@%d", name, o.label, o.rev))
		}
	}
	return found
}

// history shows what a watch with a selector for the label, "" for none, is sent
// of revision rev: nothing, or one event. What ceases to match is deleted, and
// goes out as it was.
func (m *modelStore) history(rev int, label string) (string, bool) {
	e := m.events[rev]
	before, existed := m.states[rev-1][e.name]
	was := existed && (label == "" || before.label == label)
	is := e.kind != watch.Deleted && (label == "" || e.label == label)
	switch {
	case is && was:
		return fmt.Sprintf("%s %s %s@%d", watch.Modified, e.name, e.label, rev), true
	case is:
		return fmt.Sprintf("%s %s %s@%d", watch.Added, e.name, e.label, rev), true
	case was:
		return fmt.Sprintf("%s %s %s@%d", watch.Deleted, e.name, before.label, rev), true
	}
	return "", false
}
