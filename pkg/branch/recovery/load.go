// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/window"
)

// Recovered is what there was to do when the process before this one ended.
type Recovered struct {
	// Windows, Requests and Targets are those of an engine. The targets have their names
	// and what their windows were kept apart by, nothing else.
	window.State
	// Writes are closed and not known to be on the remote, in the order in which they
	// closed.
	Writes []Write
	// CaughtUp says how catching up with a request ended, by which resource lags.
	CaughtUp map[types.UID]string
	// Ends are those of requests whose status may not be stored.
	Ends []End
}

// Write is a closed write with the commits that were made of it.
type Write struct {
	window.Write

	Attempts []Attempt
}

// End is how far a request has come for good.
type End struct {
	window.RequestRef

	Progress window.Progress
}

// Load reads what is on disk, and makes it what the Journal goes on from; it comes
// before all else. What is damaged is left out, and named by an error that joins
// *journal.DamagedError and *RowError; all other errors are of the disk.
func (j *Journal) Load(ctx context.Context) (Recovered, error) {
	if j == nil {
		return Recovered{}, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	l := loading{Journal: j, decoder: decoder{shared: map[string]string{}}, changes: map[string][]*changeRow{}, passed: map[Source]string{}}
	err := j.rows.Scan(ctx, "", func(key string, value []byte) error {
		if err := l.row(key, value); err != nil {
			l.odd = append(l.odd, &RowError{Key: key, Err: err})
		}
		return nil
	})
	if err != nil && !isDamage(err) {
		return Recovered{}, err
	}
	return l.recovered(), errors.Join(err, errors.Join(l.odd...))
}

// RowError names a row that makes no sense.
type RowError struct {
	Key string
	Err error
}

func (e *RowError) Error() string { return fmt.Sprintf("row %q of the journal: %v", e.Key, e.Err) }

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }

func isDamage(err error) bool {
	_, damaged := errors.AsType[*journal.DamagedError](err)
	return damaged
}

// IsDamage says whether all that an error of Load is about is rows that were left
// out.
func IsDamage(err error) bool {
	_, odd := errors.AsType[*RowError](err)
	return odd || isDamage(err)
}

type loading struct {
	*Journal
	decoder

	changes map[string][]*changeRow
	// block is the room for the next rows of changes: they are many, and large.
	block []changeRow
	// passed are the resourceVersions of the places.
	passed map[Source]string
	odd    []error
}

// blockSize is how many rows of changes get their room together.
const blockSize = 256

func (l *loading) row(key string, value []byte) error {
	kind, name, _ := strings.Cut(key, "/")
	switch kind += "/"; kind {
	case targetRows:
		target, err := parseName(name)
		if err != nil {
			return err
		}
		var row targetRow
		if err := json.Unmarshal(value, &row); err != nil {
			return err
		}
		l.targets[target] = row
	case windowRows:
		row := &windowRow{}
		if err := json.Unmarshal(value, row); err != nil {
			return err
		}
		l.windows[name] = row
	case changeRows:
		if len(l.block) == 0 {
			l.block = make([]changeRow, blockSize)
		}
		row := &l.block[0]
		if err := l.decode(value, row); err != nil {
			return err
		}
		l.block = l.block[1:]
		of, _, _ := strings.Cut(name, "/")
		l.changes[of] = append(l.changes[of], row)
	case requestRows:
		r := &request{}
		if err := json.Unmarshal(value, &r.requestRow); err != nil {
			return err
		}
		l.requests[types.UID(name)] = r
	case takenRows:
		l.taken.restore(key, string(value))
	case placeRows:
		fields := strings.Split(name, separator)
		if len(fields) != 3 {
			return errors.New("not a source")
		}
		source := Source{Group: fields[0], Resource: fields[1], Namespace: fields[2]}
		version, place, _ := bytes.Cut(value, []byte(separator))
		l.places[source], l.passed[source] = slices.Clone(place), string(version)
	case uncomparedRows:
		target, err := parseName(name)
		if err != nil {
			return err
		}
		l.uncompared[target] = true
	}
	return nil
}

func parseName(text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		return types.NamespacedName{}, errors.New("not a name")
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// recovered puts the rows together. A write whose request has an end is over.
func (l *loading) recovered() Recovered {
	r := Recovered{CaughtUp: map[types.UID]string{}}
	targets := map[types.NamespacedName]bool{}
	for name := range l.targets {
		targets[name] = true
	}
	var writes []Write
	orders := map[string]uint64{}
	for name, row := range l.windows {
		asked := l.requests[row.Request]
		if asked != nil {
			asked.window = name
		}
		if row.Closed == nil {
			targets[row.Target] = true
			r.Windows = append(r.Windows, l.open(name, row))
			continue
		}
		l.order = max(l.order, row.Closed.Order)
		write := l.write(name, row, asked)
		if asked != nil && asked.End != nil {
			l.over(write, asked.End.Reason == v1alpha1.ReasonTargetSuspended)
			continue
		}
		orders[name] = row.Closed.Order
		writes = append(writes, Write{Write: write, Attempts: row.Attempts})
	}
	for uid, asked := range l.requests {
		if asked.CaughtUp != nil {
			r.CaughtUp[uid] = asked.CaughtUp.Lagging
		}
		if asked.End != nil {
			r.Ends = append(r.Ends, End{RequestRef: asked.Request.RequestRef, Progress: *asked.End})
			continue
		}
		if row := l.windows[asked.window]; row != nil && row.Closed != nil {
			continue // goes with its write
		}
		targets[asked.Request.Target] = true
		r.Requests = append(r.Requests, window.OpenRequest{
			Registered: window.Registered{Request: asked.Request, Sequence: asked.Sequence, Mismatch: asked.Mismatch},
			CaughtUp:   asked.CaughtUp != nil,
		})
	}
	for name := range targets {
		row := l.targets[name]
		r.Targets = append(r.Targets, window.TargetState{Target: window.Target{Name: name, Shared: row.Shared}, LastOpened: row.LastOpened})
	}
	slices.SortFunc(writes, func(a, b Write) int { return cmp.Compare(orders[a.Name], orders[b.Name]) })
	r.Writes = writes
	return r
}

// open is a window that is open still.
func (l *loading) open(name string, row *windowRow) window.OpenWindow {
	w := window.OpenWindow{
		Opened: window.Opened{Window: name, Target: row.Target, Author: row.Author, Sequence: row.Sequence},
		At:     row.Opened, Request: row.Request, Attached: row.Attached, QuietSince: row.Attached,
	}
	var last time.Time
	w.Changes, last = l.inOrder(name)
	if last.After(w.QuietSince) {
		w.QuietSince = last
	}
	return w
}

// write is a closed one.
func (l *loading) write(name string, row *windowRow, asked *request) window.Write {
	w := window.Write{
		Name: name, Kind: row.Closed.Kind, Target: row.Target, Author: row.Closed.Author, CutShort: row.Closed.CutShort,
		Cause: row.Closed.Cause, Opened: row.Opened.UTC(), Closed: row.Closed.At.UTC(),
	}
	w.Changes, _ = l.inOrder(name)
	if asked != nil {
		request := asked.Request
		w.Request = &request
	}
	return w
}

// inOrder are the changes of a window, and the time of the last.
func (l *loading) inOrder(name string) (changes []window.Change, last time.Time) {
	rows := l.changes[name]
	slices.SortFunc(rows, func(a, b *changeRow) int { return cmp.Compare(a.index, b.index) })
	if len(rows) == 0 {
		return nil, last
	}
	changes = make([]window.Change, 0, len(rows))
	for _, row := range rows {
		changes = append(changes, row.change)
		l.taken.restoreChange(row.change, l.passed[sourceOf(row.change.Object)])
		if row.at.After(last) {
			last = row.at
		}
	}
	return changes, last
}
