// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/window"
)

// Journal says what happened, for Load to read after a crash. But for Sync and Room
// its methods return at once. Safe for concurrent use; calls about things whose order
// matters are made one after the other. A nil Journal keeps nothing.
type Journal struct {
	rows *journal.Writer

	mu sync.Mutex
	// order counts the closed writes.
	order    uint64
	targets  map[types.NamespacedName]targetRow
	windows  map[string]*windowRow
	requests map[types.UID]*request
	taken    taken
	// places are what Load found, and uncompared has it, too.
	places     map[Source][]byte
	uncompared map[types.NamespacedName]bool
}

// request is a row with where the request is.
type request struct {
	requestRow

	// window that it holds, or write that it goes with; empty while it waits.
	window string
	// gone: its object is. What it goes with keeps the row.
	gone bool
}

// New returns a Journal without content; see Load. rows is run by the caller.
func New(rows *journal.Writer) *Journal {
	return &Journal{
		rows:       rows,
		targets:    map[types.NamespacedName]targetRow{},
		windows:    map[string]*windowRow{},
		requests:   map[types.UID]*request{},
		taken:      taken{},
		places:     map[Source][]byte{},
		uncompared: map[types.NamespacedName]bool{},
	}
}

// Sync returns when all that was said before the call is on disk (D4).
func (j *Journal) Sync(ctx context.Context) error {
	if j == nil {
		return nil
	}
	return j.rows.Sync(ctx)
}

// Room makes who has much to say wait for the disk.
func (j *Journal) Room(ctx context.Context) error {
	if j == nil {
		return nil
	}
	return j.rows.Room(ctx)
}

// Effects says what an engine has done at that time. shared says whether a target has
// one window for all.
func (j *Journal) Effects(now time.Time, effects []window.Effect, shared func(types.NamespacedName) bool) {
	if j == nil || len(effects) == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var steps []journal.Step
	for _, effect := range effects {
		switch e := effect.(type) {
		case window.Opened:
			j.windows[e.Window] = &windowRow{Target: e.Target, Author: e.Author, Sequence: e.Sequence, Opened: now}
			j.targets[e.Target] = targetRow{Shared: shared(e.Target), LastOpened: e.Sequence}
			steps = append(steps, j.window(e.Window), put(targetKey(e.Target), j.targets[e.Target]))
		case window.Collected:
			steps = append(steps, j.change(e.Window, e.Index, e.Change, now))
		case window.Registered:
			if known := j.requests[e.Request.UID]; known != nil {
				known.Mismatch = e.Mismatch
			} else {
				j.requests[e.Request.UID] = &request{requestRow: requestRow{Request: e.Request, Sequence: e.Sequence, Mismatch: e.Mismatch}}
			}
			steps = append(steps, j.request(e.Request.UID))
		case window.Attached:
			if w, r := j.windows[e.Window], j.requests[e.Request.UID]; w != nil && r != nil {
				w.Request, w.Attached, r.window = e.Request.UID, now, e.Window
				steps = append(steps, j.window(e.Window))
			}
		case window.Closed:
			steps = j.closed(steps, e.Write)
		case window.Discarded:
			steps = j.discarded(steps, e.Write)
		case window.CatchUp, window.Resolved: // the end of a request is said by End
		}
	}
	j.rows.Append(steps...)
}

// closed makes a window a write. Caller must hold mu.
func (j *Journal) closed(steps []journal.Step, w window.Write) []journal.Step {
	row := j.windows[w.Name]
	if row == nil { // a resync, or an empty write
		row = &windowRow{Target: w.Target, Opened: w.Opened}
		j.windows[w.Name] = row
		for i, c := range w.Changes {
			steps = append(steps, j.change(w.Name, i, c, w.Closed))
		}
	}
	j.order++
	row.Closed = &closedRow{Order: j.order, Kind: w.Kind, Author: w.Author, CutShort: w.CutShort, Cause: w.Cause, At: w.Closed}
	if w.Request != nil {
		row.Request = w.Request.UID
		if r := j.requests[w.Request.UID]; r != nil {
			r.window = w.Name
		}
	}
	return append(steps, j.window(w.Name))
}

// discarded drops what comes to nothing, and has its target compared. Caller must hold
// mu.
func (j *Journal) discarded(steps []journal.Step, w window.Write) []journal.Step {
	j.uncompared[w.Target] = true
	steps = append(steps, journal.Put(uncomparedRows+w.Target.String(), nil))
	if j.windows[w.Name] == nil {
		return steps // they never came into a window
	}
	return j.drop(steps, w.Name)
}

// CaughtUp says that catching up with a request has ended, and which resource lags.
func (j *Journal) CaughtUp(uid types.UID, lagging string) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.requests[uid]; r != nil {
		r.CaughtUp = &caughtUpRow{Lagging: lagging}
		j.rows.Append(j.request(uid))
	}
}

// Attempted says which commits were made of a write (D2).
func (j *Journal) Attempted(write string, attempts []Attempt) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if w := j.windows[write]; w != nil {
		w.Attempts = slices.Clone(attempts)
		j.rows.Append(j.window(write))
	}
}

// Superseded says that a later write has settled some of a write's objects.
func (j *Journal) Superseded(write string, objects []window.Object) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var steps []journal.Step
	for _, o := range objects {
		steps = append(steps, journal.Delete(changeKey(write, o)))
	}
	j.rows.Append(steps...)
}

// Over says that nothing is to be done for a write any more. discarded: its changes
// came to nothing, and the target has to be compared with Git again.
func (j *Journal) Over(w window.Write, discarded bool) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over(w, discarded)
}

// over is Over. Caller must hold mu.
func (j *Journal) over(w window.Write, discarded bool) {
	if j.windows[w.Name] == nil {
		return
	}
	if discarded {
		j.rows.Append(j.discarded(nil, w)...)
		return
	}
	var steps []journal.Step
	for _, c := range w.Changes {
		steps = j.taken.outlive(steps, c)
	}
	j.rows.Append(j.drop(steps, w.Name)...)
}

// drop removes the rows of a window or a write, and of its request if that is over.
// Caller must hold mu.
func (j *Journal) drop(steps []journal.Step, name string) []journal.Step {
	steps = append(steps, journal.Delete(windowKey(name)), journal.DeleteAll(changeKeys(name)))
	if r := j.requests[j.windows[name].Request]; r != nil {
		r.window = ""
		if r.gone {
			steps = j.forget(steps, r.Request.UID)
		}
	}
	delete(j.windows, name)
	return steps
}

// End says how far a request has come for good. Its row stays until Told.
func (j *Journal) End(ref window.RequestRef, progress window.Progress) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.requests[ref.UID]
	if r == nil {
		r = &request{requestRow: requestRow{Request: window.Request{RequestRef: ref}}}
		j.requests[ref.UID] = r
	}
	r.End = &progress
	j.rows.Append(j.request(ref.UID))
}

// Told says that the end of a request is stored: nobody has to be told any more.
func (j *Journal) Told(uid types.UID) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.requests[uid]
	if r == nil || r.End == nil {
		return
	}
	if r.window != "" {
		r.gone = true // the write that it goes with is being removed
		return
	}
	j.rows.Append(j.forget(nil, uid)...)
}

// Gone says that the object of a request is deleted. What the request holds keeps
// its message (W17).
func (j *Journal) Gone(uid types.UID) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.requests[uid]
	if r == nil {
		return
	}
	if r.gone = true; r.window == "" {
		j.rows.Append(j.forget(nil, uid)...)
	}
}

func (j *Journal) forget(steps []journal.Step, uid types.UID) []journal.Step {
	delete(j.requests, uid)
	return append(steps, journal.Delete(requestKey(uid)))
}

// TargetGone says that a target is not known any more.
func (j *Journal) TargetGone(name types.NamespacedName) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	steps := []journal.Step{journal.Delete(uncomparedRows + name.String())}
	if _, known := j.targets[name]; known {
		delete(j.targets, name)
		steps = append(steps, journal.Delete(targetKey(name)))
	}
	j.rows.Append(steps...)
}

// Again says whether a change was taken before this process began, and comes again
// because its source's place was not on disk yet.
func (j *Journal) Again(c window.Change) bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.taken.again(c)
}

// Passed says that a source has come to a place, which the caller describes: nothing
// up to that resourceVersion comes again.
func (j *Journal) Passed(source Source, version string, place []byte) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	steps := []journal.Step{journal.Put(placeRows+source.String(), append([]byte(version+separator), place...))}
	j.rows.Append(j.taken.pass(steps, source, version)...)
}

// Forget says that a source does not go on from where it was: nothing comes again.
func (j *Journal) Forget(source Source) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.places, source)
	steps := []journal.Step{journal.Delete(placeRows + source.String())}
	j.rows.Append(j.taken.pass(steps, source, "")...)
}

// Place is where a source was when this process began; false if that is not known.
func (j *Journal) Place(source Source) ([]byte, bool) {
	if j == nil {
		return nil, false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	place, ok := j.places[source]
	return place, ok
}

// Sources are those that have a Place.
func (j *Journal) Sources() []Source {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Keys(j.places))
}

// Uncompared are the targets of which changes had come to nothing when this process
// began.
func (j *Journal) Uncompared() []types.NamespacedName {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Keys(j.uncompared))
}

// Compared says that a target was compared with Git after changes of it had come to
// nothing.
func (j *Journal) Compared(target types.NamespacedName) {
	if j == nil {
		return
	}
	j.rows.Append(journal.Delete(uncomparedRows + target.String()))
}

// window is the step that stores a row as it is. Caller must hold mu.
func (j *Journal) window(name string) journal.Step { return put(windowKey(name), j.windows[name]) }

// request is the step that stores a row as it is. Caller must hold mu.
func (j *Journal) request(uid types.UID) journal.Step {
	return put(requestKey(uid), j.requests[uid].requestRow)
}

// change is the step that stores a change, which is taken with it. Caller must hold
// mu.
func (j *Journal) change(name string, index int, c window.Change, now time.Time) journal.Step {
	j.taken.add(c)
	return journal.Put(changeKey(name, c.Object), changeRow{index: index, at: now, change: c}.encode())
}

func put(key string, row any) journal.Step {
	value, _ := json.Marshal(row) // rows hold nothing that cannot be marshalled
	return journal.Put(key, value)
}
