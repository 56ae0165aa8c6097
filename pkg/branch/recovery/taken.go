// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/window"
)

// taken are the versions that were taken of objects, as far as their source's place
// does not cover them: after a crash they come again.
type taken map[Source]map[takenKey]takenVersion

type takenKey struct {
	target types.NamespacedName
	name   string
}

type takenVersion struct {
	// last is what was taken last, before that which was before this process began.
	last, before version
	// row: there is one that says so, or said so of an earlier version.
	row bool
}

// version is a resourceVersion, or the deletion that came before it: when an object
// was replaced unseen, both have the same.
type version struct {
	resourceVersion string
	deleted         bool
}

func versionOf(c window.Change) version {
	return version{resourceVersion: c.ResourceVersion, deleted: c.Operation == window.Delete}
}

// deletedMark ends the row of a deletion.
const deletedMark = "-"

func (v version) row() []byte {
	if v.deleted {
		return []byte(v.resourceVersion + deletedMark)
	}
	return []byte(v.resourceVersion)
}

func parseVersion(row string) version {
	text, deleted := strings.CutSuffix(row, deletedMark)
	return version{resourceVersion: text, deleted: deleted}
}

// covers says whether w is v or came before it.
func (v version) covers(w version) bool {
	order, err := resourceversion.CompareResourceVersion(w.resourceVersion, v.resourceVersion)
	return err == nil && (order < 0 || order == 0 && (w.deleted || !v.deleted))
}

func (s Source) takenKey(k takenKey) string {
	return takenRows + strings.Join([]string{s.Group, s.Resource, s.Namespace, k.name, k.target.Namespace, k.target.Name}, separator)
}

func keyOf(c window.Change) (Source, takenKey) {
	return sourceOf(c.Object), takenKey{target: c.Target, name: c.Object.Name}
}

// again says whether a change, or a later one of its object, was taken before this
// process began.
func (t taken) again(c window.Change) bool {
	source, key := keyOf(c)
	return t[source][key].before.covers(versionOf(c))
}

// add notes a change whose own row says that it was taken.
func (t taken) add(c window.Change) {
	if c.ResourceVersion == "" {
		return // no event brings it
	}
	source, key := keyOf(c)
	now := t.of(source)[key]
	now.last = versionOf(c)
	t[source][key] = now
}

// outlive are steps and those that keep what is known of a change whose row goes.
func (t taken) outlive(steps []journal.Step, c window.Change) []journal.Step {
	source, key := keyOf(c)
	now, ok := t[source][key]
	if !ok || now.last != versionOf(c) {
		return steps // its source has passed it, or a later one has a row
	}
	now.row = true
	t[source][key] = now
	return append(steps, journal.Put(source.takenKey(key), now.last.row()))
}

// pass are steps and those that forget what a source will not bring again: all up to
// a version; all there is where that is empty.
func (t taken) pass(steps []journal.Step, source Source, upTo string) []journal.Step {
	for key, now := range t[source] {
		if upTo != "" && !(version{resourceVersion: upTo}).covers(now.last) {
			continue
		}
		delete(t[source], key)
		if now.row {
			steps = append(steps, journal.Delete(source.takenKey(key)))
		}
	}
	if len(t[source]) == 0 {
		delete(t, source)
	}
	return steps
}

// restore takes in a row; one that makes no sense changes nothing.
func (t taken) restore(key, row string) {
	fields := strings.Split(strings.TrimPrefix(key, takenRows), separator)
	if len(fields) != 6 {
		return
	}
	source := Source{Group: fields[0], Resource: fields[1], Namespace: fields[2]}
	t.restored(source, takenKey{name: fields[3], target: types.NamespacedName{Namespace: fields[4], Name: fields[5]}}, parseVersion(row), true)
}

// restoreChange takes in a change that has its row still, unless its source has
// passed it.
func (t taken) restoreChange(c window.Change, passed string) {
	if c.ResourceVersion != "" && !(version{resourceVersion: passed}).covers(versionOf(c)) {
		source, key := keyOf(c)
		t.restored(source, key, versionOf(c), false)
	}
}

func (t taken) restored(source Source, key takenKey, v version, row bool) {
	now := t.of(source)[key]
	if now.last == (version{}) || v.covers(now.last) {
		now.last, now.before = v, v
	}
	now.row = now.row || row
	t[source][key] = now
}

func (t taken) of(source Source) map[takenKey]takenVersion {
	if t[source] == nil {
		t[source] = map[takenKey]takenVersion{}
	}
	return t[source]
}
