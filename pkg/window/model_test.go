// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// model says the same as Engine in the plainest way: two lists, looked through
// from end to end. It has no timers, no index and no queue; whatever waits is
// told of each window that opens.
type model struct {
	targets  map[types.NamespacedName]Target
	windows  []*modelWindow
	requests []*modelRequest
	known    map[types.UID]bool
	maxBytes int
	names    int
	effects  []Effect
}

type modelWindow struct {
	name                       string
	target                     types.NamespacedName
	author                     Author
	request                    *modelRequest
	changes                    []Change
	opened, attached, lastEdit time.Time
}

type modelRequest struct {
	Request

	window                        *modelWindow
	caughtUp, mismatch, withdrawn bool
}

func (m *model) take() []Effect {
	effects := m.effects
	m.effects = nil
	return effects
}

func (m *model) name() string {
	m.names++
	return fmt.Sprintf("w%d", m.names)
}

// owner is whose window an author's changes or requests are about.
func (m *model) owner(target types.NamespacedName, a Author) Author {
	if m.targets[target].Shared {
		return Author{}
	}
	return a
}

// deadlines calls each of a window's, with why it closes then.
func (m *model) deadlines(w *modelWindow, each func(time.Time, Cause)) {
	target := m.targets[w.target]
	switch r := w.request; {
	case r == nil:
		if target.IdleTimeout > 0 {
			each(w.lastEdit.Add(target.IdleTimeout), CauseIdle)
		}
		if target.MaxDuration > 0 {
			each(w.opened.Add(target.MaxDuration), CauseMaxDuration)
		}
	case r.caughtUp:
		each(w.attached.Add(r.MaxDuration), CauseRequest)
		if r.IdleTimeout > 0 {
			each(w.lastEdit.Add(r.IdleTimeout), CauseRequest)
		}
	}
}

// closes is the first of a window's deadlines.
func (m *model) closes(w *modelWindow) time.Time {
	var first time.Time
	m.deadlines(w, func(due time.Time, _ Cause) {
		if first.IsZero() || due.Before(first) {
			first = due
		}
	})
	return first
}

// settle does what is due, the earliest first; requests before windows, the older
// before the younger.
func (m *model) settle(now time.Time) {
	for {
		var first func()
		var at time.Time
		consider := func(due time.Time, do func()) {
			if !due.After(now) && (first == nil || due.Before(at)) {
				first, at = do, due
			}
		}
		for _, r := range m.requests {
			if r.window == nil && r.caughtUp {
				consider(r.AttachDeadline, func() { m.expire(r, now) })
			}
		}
		for _, w := range m.windows {
			m.deadlines(w, func(due time.Time, cause Cause) {
				consider(due, func() { m.close(w, cause, now) })
			})
		}
		if first == nil {
			return
		}
		first()
	}
}

func (m *model) expire(r *modelRequest, now time.Time) {
	switch {
	case r.mismatch:
		m.resolve(r, v1alpha1.ReasonWindowMismatch)
	case r.WhenNothingToCommit == v1alpha1.NothingCommitEmpty:
		asked := r.Request
		m.effects = append(m.effects, Closed{Write{
			Name: m.name(), Kind: EmptyWrite, Target: r.Target, Author: r.Author, Request: &asked,
			Cause: CauseRequest, Opened: now, Closed: now,
		}})
		m.forget(r)
	default:
		m.resolve(r, v1alpha1.ReasonNoOpenWindow)
	}
}

func (m *model) resolve(r *modelRequest, reason string) {
	m.effects = append(m.effects, Resolved{r.RequestRef, reason})
	m.forget(r)
}

func (m *model) forget(r *modelRequest) {
	m.requests = slices.DeleteFunc(m.requests, func(other *modelRequest) bool { return other == r })
	m.known[r.UID] = !r.withdrawn
}

func (m *model) close(w *modelWindow, cause Cause, now time.Time) {
	m.windows = slices.DeleteFunc(m.windows, func(other *modelWindow) bool { return other == w })
	write := Write{
		Name: w.name, Kind: WindowWrite, Target: w.target, Author: w.author, Changes: w.changes,
		Cause: cause, Opened: w.opened, Closed: now,
	}
	if w.request != nil {
		asked := w.request.Request
		write.Request, write.Author, write.CutShort = &asked, asked.Author, !w.request.caughtUp
	}
	if cause == CauseSuspended {
		m.effects = append(m.effects, Discarded{write})
		if w.request != nil {
			m.resolve(w.request, v1alpha1.ReasonTargetSuspended)
		}
		return
	}
	m.effects = append(m.effects, Closed{write})
	if w.request != nil {
		m.forget(w.request)
	}
}

func (m *model) closeTarget(target types.NamespacedName, cause Cause, now time.Time) {
	for _, w := range slices.Clone(m.windows) {
		if w.target == target {
			m.close(w, cause, now)
		}
	}
}

func (m *model) failWaiting(target types.NamespacedName, reason string) {
	for _, r := range slices.Clone(m.requests) {
		if r.Target == target && r.window == nil {
			m.resolve(r, reason)
		}
	}
}

func (m *model) find(target types.NamespacedName, owner Author) *modelWindow {
	for _, w := range m.windows {
		if w.target == target && w.author == owner {
			return w
		}
	}
	return nil
}

func (m *model) attach(w *modelWindow, r *modelRequest, now time.Time) {
	w.request, r.window = r, w
	w.attached, w.lastEdit = now, now
	m.effects = append(m.effects, Attached{r.RequestRef, w.name})
}

func (m *model) setTarget(now time.Time, target Target) {
	m.settle(now)
	before, known := m.targets[target.Name]
	if known && target.Suspended {
		m.closeTarget(target.Name, CauseSuspended, now)
		m.failWaiting(target.Name, v1alpha1.ReasonTargetSuspended)
	}
	if known && before.Shared != target.Shared {
		m.closeTarget(target.Name, CauseTargetChanged, now)
	}
	m.targets[target.Name] = target
	m.settle(now)
}

func (m *model) removeTarget(now time.Time, name types.NamespacedName) {
	m.settle(now)
	m.closeTarget(name, CauseTargetDeleted, now)
	m.failWaiting(name, v1alpha1.ReasonTargetDeleted)
	delete(m.targets, name)
}

func (m *model) size(changes []Change) int {
	size := 0
	for _, c := range changes {
		size += len(c.Manifest)
	}
	return size
}

func (m *model) tooLarge(changes []Change) bool {
	return m.maxBytes > 0 && m.size(changes) > m.maxBytes
}

// with is what a window holds after one more change.
func with(changes []Change, c Change) []Change {
	changes = slices.Clone(changes)
	for i, before := range changes {
		if before.Object == c.Object {
			if before.Operation == Create && c.Operation == Update {
				c.Operation = Create
			}
			if before.Operation != Create && c.Operation == Create {
				c.Operation = Update
			}
			changes[i] = c
			return changes
		}
	}
	return append(changes, c)
}

func (m *model) change(now time.Time, c Change) {
	m.settle(now)
	target, known := m.targets[c.Target]
	if !known || target.Suspended {
		cause := CauseTargetDeleted
		if known {
			cause = CauseSuspended
		}
		m.effects = append(m.effects, Discarded{Write{
			Kind: WindowWrite, Target: c.Target, Author: c.Author, Changes: []Change{c}, Cause: cause, Opened: now, Closed: now,
		}})
		return
	}
	owner := m.owner(c.Target, c.Author)
	if !target.Shared && c.Author.Username == "" {
		owner = Unresolved
	}
	for _, w := range slices.Clone(m.windows) {
		holds := slices.ContainsFunc(w.changes, func(held Change) bool { return held.Object == c.Object })
		if w.target == c.Target && w.author != owner && holds {
			m.close(w, CauseObjectTaken, now)
		}
	}
	w := m.find(c.Target, owner)
	if w != nil && m.tooLarge(with(w.changes, c)) {
		m.close(w, CauseSizeLimit, now)
		w = nil
	}
	if w == nil {
		w = &modelWindow{name: m.name(), target: c.Target, author: owner, opened: now}
		m.windows = append(m.windows, w)
		for _, r := range m.requests {
			if r.Target != c.Target || r.window != nil {
				continue
			}
			if m.owner(r.Target, r.Author) != owner {
				r.mismatch = true
			} else if w.request == nil {
				m.attach(w, r, now)
			}
		}
	}
	w.changes, w.lastEdit = with(w.changes, c), now
	if m.tooLarge(w.changes) {
		m.close(w, CauseSizeLimit, now)
	}
	m.settle(now)
}

func (m *model) register(now time.Time, asked Request) {
	m.settle(now)
	if m.known[asked.UID] {
		return
	}
	m.known[asked.UID] = true
	r := &modelRequest{Request: asked}
	target, known := m.targets[asked.Target]
	if !known {
		m.resolve(r, v1alpha1.ReasonTargetDeleted)
		return
	}
	if target.Suspended {
		m.resolve(r, v1alpha1.ReasonTargetSuspended)
		return
	}
	for _, earlier := range m.requests {
		if earlier.Target == asked.Target && earlier.Author == asked.Author &&
			(earlier.window == nil || asked.Attach != v1alpha1.AttachNext) {
			m.resolve(r, v1alpha1.ReasonSaveInProgress)
			return
		}
	}
	owner := m.owner(asked.Target, asked.Author)
	w := m.find(asked.Target, owner)
	if w != nil && asked.Attach == v1alpha1.AttachNext {
		m.close(w, CauseNext, now)
		w = nil
	}
	m.requests = append(m.requests, r)
	if w != nil && w.request == nil {
		m.attach(w, r, now)
	} else {
		for _, other := range m.windows {
			if other.target == asked.Target && other.author != owner {
				r.mismatch = true
			}
		}
	}
	m.effects = append(m.effects, CatchUp{r.RequestRef, r.Target})
}

func (m *model) withdraw(now time.Time, uid types.UID) {
	m.settle(now)
	delete(m.known, uid)
	for _, r := range slices.Clone(m.requests) {
		if r.UID == uid {
			r.withdrawn = true
			m.known[uid] = true // until its window closes
			if r.window == nil {
				m.forget(r)
			}
		}
	}
}

func (m *model) caughtUp(now time.Time, uid types.UID) {
	for _, r := range m.requests {
		if r.UID == uid {
			r.caughtUp = true
		}
	}
	m.settle(now)
}

func (m *model) resync(now time.Time, target types.NamespacedName, changes []Change) {
	m.settle(now)
	if len(changes) == 0 {
		return
	}
	write := Write{Kind: ResyncWrite, Target: target, Changes: changes, Cause: CauseResync, Opened: now, Closed: now}
	known, ok := m.targets[target]
	switch {
	case !ok:
		write.Cause = CauseTargetDeleted
		m.effects = append(m.effects, Discarded{write})
	case known.Suspended:
		write.Cause = CauseSuspended
		m.effects = append(m.effects, Discarded{write})
	default:
		m.closeTarget(target, CauseResync, now)
		write.Name = m.name()
		m.effects = append(m.effects, Closed{write})
	}
}

func (m *model) shutdown(now time.Time) {
	m.settle(now)
	for _, w := range slices.Clone(m.windows) {
		m.close(w, CauseShutdown, now)
	}
}
