// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"cmp"
	"container/list"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

// Bounds of what is remembered of windows that are closed, for watches that
// resume.
const (
	maxClosedWindows = 1000
	maxClosedChanges = 50_000
)

// windowTable says when which window changed last. What the window is comes from
// the engine when somebody asks, so a change costs the same in a window of any
// size. Pool.mu guards it.
type windowTable struct {
	// revision of the last change. It starts at the present time in microseconds, so
	// that it never goes back from one process to the next.
	revision uint64
	// forgotten is the revision up to which closed windows may be unknown.
	forgotten uint64
	open      map[string]*list.Element
	// changes are windowRows in the order of their revisions.
	changes *list.List
	// closed are the changes that closed a window, oldest first, and closedChanges
	// counts what is in those windows.
	closed        []*list.Element
	closedChanges int
	// next is closed, and made anew, at each change.
	next chan struct{}
}

type windowRow struct {
	name             string
	opened, revision uint64
	// last is the state at the end; nil while the window is open.
	last *v1alpha1.CommitWindow
}

func newWindowTable(now time.Time) windowTable {
	start := uint64(now.UnixMicro())
	return windowTable{
		revision:  start,
		forgotten: start,
		open:      map[string]*list.Element{},
		changes:   list.New(),
		next:      make(chan struct{}),
	}
}

// touched notes that an open window has changed.
func (t *windowTable) touched(name string) {
	t.revision++
	if known := t.open[name]; known != nil {
		known.Value.(*windowRow).revision = t.revision
		t.changes.MoveToBack(known)
		return
	}
	t.open[name] = t.changes.PushBack(&windowRow{name: name, opened: t.revision, revision: t.revision})
}

// ended notes that a window is closed; one that nobody can have seen leaves no
// trace.
func (t *windowTable) ended(name string, last func() *v1alpha1.CommitWindow) {
	known := t.open[name]
	if known == nil {
		return
	}
	delete(t.open, name)
	t.revision++
	row := known.Value.(*windowRow)
	row.revision, row.last = t.revision, last()
	row.last.ResourceVersion = strconv.FormatUint(t.revision, 10)
	t.changes.MoveToBack(known)
	t.closed = append(t.closed, known)
	t.closedChanges += len(row.last.Status.Changes)
	for len(t.closed) > maxClosedWindows || t.closedChanges > maxClosedChanges {
		oldest := t.closed[0].Value.(*windowRow)
		t.forgotten = oldest.revision
		t.closedChanges -= len(oldest.last.Status.Changes)
		t.changes.Remove(t.closed[0])
		t.closed = slices.Delete(t.closed, 0, 1)
	}
}

// announce wakes those who follow the table.
func (t *windowTable) announce() {
	close(t.next)
	t.next = make(chan struct{})
}

// Windows are the open windows of a namespace, "" being all, by name, and the
// revision of the last change to any.
func (p *Pool) Windows(namespace string) ([]v1alpha1.CommitWindow, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var open []v1alpha1.CommitWindow
	for name, e := range p.windows.open {
		if w := p.openWindow(name, e.Value.(*windowRow).revision, namespace); w != nil {
			open = append(open, *w)
		}
	}
	slices.SortFunc(open, func(a, b v1alpha1.CommitWindow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return open, p.windows.revision
}

// Window is one open window; false if there is none of that name.
func (p *Pool) Window(namespace, name string) (*v1alpha1.CommitWindow, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.windows.open[name]
	if e == nil {
		return nil, false
	}
	w := p.openWindow(name, e.Value.(*windowRow).revision, namespace)
	return w, w != nil
}

// Since is what a watch that has seen everything up to a revision is to be sent:
// for each window that changed after it, the one event that leads to its present
// state, in the order of the last changes. upTo is where that leads to, next is
// closed at the next change. Not ok: the revision is too long ago to be known, or
// of another process.
func (p *Pool) Since(namespace string, revision uint64) (events []watch.Event, upTo uint64, next <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.windows
	if revision < t.forgotten || revision > t.revision {
		return nil, 0, nil, false
	}
	for e := t.changes.Back(); e != nil; e = e.Prev() {
		row := e.Value.(*windowRow)
		if row.revision <= revision {
			break
		}
		seen := row.opened <= revision
		if row.last != nil {
			if seen && (namespace == "" || namespace == row.last.Namespace) {
				events = append(events, watch.Event{Type: watch.Deleted, Object: row.last.DeepCopy()})
			}
			continue
		}
		w := p.openWindow(row.name, row.revision, namespace)
		switch {
		case w == nil:
		case seen:
			events = append(events, watch.Event{Type: watch.Modified, Object: w})
		default:
			events = append(events, watch.Event{Type: watch.Added, Object: w})
		}
	}
	slices.Reverse(events)
	return events, t.revision, t.next, true
}

// openWindow is nil for a window of another namespace. Caller must hold mu.
func (p *Pool) openWindow(name string, revision uint64, namespace string) *v1alpha1.CommitWindow {
	s, ok := p.engine.Window(name)
	if !ok || namespace != "" && namespace != s.Target.Namespace {
		return nil
	}
	w := p.commitWindow(s)
	w.ResourceVersion = strconv.FormatUint(revision, 10)
	return w
}

// noteWindows brings the table up to what the engine has just done. Caller must
// hold mu.
func (p *Pool) noteWindows(ended map[string]window.Write) {
	touched := p.engine.Touched()
	for _, name := range touched {
		write, closed := ended[name]
		if !closed {
			p.windows.touched(name)
			continue
		}
		p.windows.ended(name, func() *v1alpha1.CommitWindow {
			last := window.Snapshot{Name: name, Target: write.Target, Author: write.Author, Changes: write.Changes, Opened: write.Opened}
			if write.Request != nil {
				last.Request = &write.Request.RequestRef
			}
			return p.commitWindow(last)
		})
	}
	if len(touched) > 0 {
		p.windows.announce()
	}
}

// commitWindow is a window as it is served. Caller must hold mu.
func (p *Pool) commitWindow(s window.Snapshot) *v1alpha1.CommitWindow {
	w := &v1alpha1.CommitWindow{
		ObjectMeta: metav1.ObjectMeta{
			Name:              s.Name,
			Namespace:         s.Target.Namespace,
			UID:               types.UID(uuid.NewSHA1(uuid.Nil, []byte(s.Target.Namespace+"/"+s.Name)).String()),
			CreationTimestamp: metav1.NewTime(s.Opened),
		},
		Status: v1alpha1.CommitWindowStatus{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: s.Target.Name},
			AuthorKind:   v1alpha1.AuthorUser,
			Author:       s.Author.Username,
			OpenTime:     metav1.NewMicroTime(s.Opened),
			ChangeCount:  int32(len(s.Changes)),
			Bytes:        s.Bytes,
		},
	}
	switch {
	case s.Author.Unresolved:
		w.Status.AuthorKind, w.Status.Author = v1alpha1.AuthorUnresolved, ""
	case s.Author == window.Author{}:
		w.Status.AuthorKind = v1alpha1.AuthorShared
	}
	if !s.Closes.IsZero() {
		closes := metav1.NewMicroTime(s.Closes)
		w.Status.CloseTime = &closes
	}
	if s.Request != nil {
		w.Status.CommitRequestRef = &v1alpha1.LocalObjectReference{Name: s.Request.Name}
	}
	target := p.targets[s.Target]
	for _, c := range s.Changes {
		path := ""
		if target != nil {
			path = p.destinations.known(target, objectOf(c))
		}
		w.Status.Changes = append(w.Status.Changes, v1alpha1.WindowChange{
			Operation: string(c.Operation),
			Group:     c.Object.Group, Resource: c.Object.Resource, Namespace: c.Object.Namespace, Name: c.Object.Name,
			Path: path,
		})
	}
	return w
}
