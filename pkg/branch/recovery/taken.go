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
	// version that was taken last, before that which was before this process began.
	version, before string
	// row: there is one that says so, or said so of an earlier version.
	row bool
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
	last := t[source][key]
	return last.before != "" && c.ResourceVersion != "" && notAfter(c.ResourceVersion, last.before)
}

// add notes a change whose own row says that it was taken.
func (t taken) add(c window.Change) {
	if c.ResourceVersion == "" {
		return // no event brings it
	}
	source, key := keyOf(c)
	last := t.of(source)[key]
	last.version = c.ResourceVersion
	t[source][key] = last
}

// outlive are steps and those that keep what is known of a change whose row goes.
func (t taken) outlive(steps []journal.Step, c window.Change) []journal.Step {
	source, key := keyOf(c)
	last, ok := t[source][key]
	if !ok || last.version != c.ResourceVersion {
		return steps // its source has passed it, or a later one has a row
	}
	last.row = true
	t[source][key] = last
	return append(steps, journal.Put(source.takenKey(key), []byte(last.version)))
}

// pass are steps and those that forget what a source will not bring again: all up to
// a version; all there is where that is empty.
func (t taken) pass(steps []journal.Step, source Source, version string) []journal.Step {
	for key, last := range t[source] {
		if version != "" && !notAfter(last.version, version) {
			continue
		}
		delete(t[source], key)
		if last.row {
			steps = append(steps, journal.Delete(source.takenKey(key)))
		}
	}
	if len(t[source]) == 0 {
		delete(t, source)
	}
	return steps
}

// restore takes in a row; one that makes no sense changes nothing.
func (t taken) restore(key, version string) {
	fields := strings.Split(strings.TrimPrefix(key, takenRows), separator)
	if len(fields) != 6 {
		return
	}
	source := Source{Group: fields[0], Resource: fields[1], Namespace: fields[2]}
	t.restored(source, takenKey{name: fields[3], target: types.NamespacedName{Namespace: fields[4], Name: fields[5]}}, version, true)
}

// restoreChange takes in a change that has its row still.
func (t taken) restoreChange(c window.Change) {
	if c.ResourceVersion != "" {
		source, key := keyOf(c)
		t.restored(source, key, c.ResourceVersion, false)
	}
}

func (t taken) restored(source Source, key takenKey, version string, row bool) {
	last := t.of(source)[key]
	if last.version == "" || notAfter(last.version, version) {
		last.version, last.before = version, version
	}
	last.row = last.row || row
	t[source][key] = last
}

func (t taken) of(source Source) map[takenKey]takenVersion {
	if t[source] == nil {
		t[source] = map[takenKey]takenVersion{}
	}
	return t[source]
}

// notAfter says whether resourceVersion a is b or came before it.
func notAfter(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order <= 0
}
