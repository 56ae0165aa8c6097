// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/pkg/window"
)

// The kinds of rows, which their keys begin with.
const (
	targetRows     = "target/"
	windowRows     = "window/"
	changeRows     = "change/"
	requestRows    = "request/"
	takenRows      = "taken/"
	placeRows      = "place/"
	uncomparedRows = "uncompared/"
)

// separator stands between names that may hold a slash.
const separator = "\x00"

// targetRow is what Restore has to know of a target besides what its object says.
type targetRow struct {
	Shared     bool
	LastOpened uint64
}

// windowRow is an open window, or a closed write.
type windowRow struct {
	Target   types.NamespacedName
	Author   window.Author
	Sequence uint64
	Opened   time.Time
	Request  types.UID `json:",omitempty"`
	Attached time.Time `json:",omitzero"`
	// Closed is set with the write.
	Closed *closedRow `json:",omitempty"`
	// Attempts are the commits that were made of it, none of which is known to be on
	// the remote (D2).
	Attempts []Attempt `json:",omitempty"`
}

type closedRow struct {
	// Order among all closed writes.
	Order    uint64
	Kind     window.WriteKind
	Author   window.Author
	CutShort bool `json:",omitempty"`
	Cause    window.Cause
	At       time.Time
}

// Attempt is a commit that was made of a write.
type Attempt struct {
	Hash string
	// Changed are the paths that differ, Unsaved says what could not be edited.
	Changed []string `json:",omitempty"`
	Unsaved []string `json:",omitempty"`
}

// requestRow is a request that waits, or holds a window or a write; or its end.
type requestRow struct {
	Request  window.Request
	Sequence uint64
	Mismatch bool `json:",omitempty"`
	// CaughtUp says how catching up ended; nil until then.
	CaughtUp *caughtUpRow `json:",omitempty"`
	// End is how far the request has come for good.
	End *window.Progress `json:",omitempty"`
}

type caughtUpRow struct{ Lagging string }

func targetKey(name types.NamespacedName) string { return targetRows + name.String() }

func windowKey(name string) string { return windowRows + name }

func changeKeys(name string) string { return changeRows + name + "/" }

func changeKey(name string, o window.Object) string {
	return changeKeys(name) + strings.Join([]string{o.Group, o.Resource, o.Namespace, o.Name}, separator)
}

func requestKey(uid types.UID) string { return requestRows + string(uid) }

// Source is one resource in one namespace, as capture reads it.
type Source struct{ Group, Resource, Namespace string }

func sourceOf(o window.Object) Source {
	return Source{Group: o.Group, Resource: o.Resource, Namespace: o.Namespace}
}

func (s Source) String() string {
	return strings.Join([]string{s.Group, s.Resource, s.Namespace}, separator)
}

// changeRow is a change where it is in its window. There are many of them, so they
// have a form of their own: a version, the index, the time, then all strings and the
// manifest with their lengths before them.
type changeRow struct {
	index  int
	at     time.Time
	change window.Change
}

// changeForm is the version of the form.
const changeForm = 1

const (
	unresolvedFlag = 1 << iota
	manifestFlag
)

func (r changeRow) encode() []byte {
	c := r.change
	fields := [...]string{
		c.Target.Namespace, c.Target.Name, c.Object.Group, c.Object.Resource, c.Object.Namespace, c.Object.Name,
		string(c.UID), c.ResourceVersion, c.Author.Username, string(c.Operation),
	}
	size := 2 + 2*binary.MaxVarintLen64 + len(c.Manifest)
	for _, field := range fields {
		size += len(field) + 2
	}
	flags := byte(0)
	if c.Author.Unresolved {
		flags |= unresolvedFlag
	}
	if c.Manifest != nil {
		flags |= manifestFlag
	}
	b := append(make([]byte, 0, size), changeForm, flags)
	b = binary.AppendUvarint(b, uint64(r.index))
	b = binary.AppendVarint(b, r.at.UnixNano())
	for _, field := range fields {
		b = binary.AppendUvarint(b, uint64(len(field)))
		b = append(b, field...)
	}
	return append(b, c.Manifest...)
}

var errForm = errors.New("a change of an unknown form")

// decoder reads change rows. The strings that many of them share are kept once.
type decoder struct {
	shared map[string]string
	b      []byte
	bad    bool
}

func (d *decoder) decode(b []byte) (changeRow, error) {
	if len(b) < 2 || b[0] != changeForm {
		return changeRow{}, errForm
	}
	flags := b[1]
	d.b, d.bad = b[2:], false
	index, n := binary.Uvarint(d.b)
	d.skip(n)
	nanoseconds, n := binary.Varint(d.b)
	d.skip(n)
	r := changeRow{index: int(index), at: time.Unix(0, nanoseconds)}
	c := &r.change
	c.Target.Namespace, c.Target.Name = d.text(true), d.text(true)
	c.Object.Group, c.Object.Resource, c.Object.Namespace, c.Object.Name = d.text(true), d.text(true), d.text(true), d.text(false)
	c.UID, c.ResourceVersion = types.UID(d.text(false)), d.text(false)
	c.Author.Username, c.Operation = d.text(true), window.Operation(d.text(true))
	c.Author.Unresolved = flags&unresolvedFlag != 0
	if flags&manifestFlag != 0 {
		c.Manifest = append([]byte{}, d.b...)
	}
	if d.bad {
		return changeRow{}, errForm
	}
	return r, nil
}

func (d *decoder) skip(n int) {
	if n <= 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return
	}
	d.b = d.b[n:]
}

func (d *decoder) text(shared bool) string {
	length, n := binary.Uvarint(d.b)
	if d.skip(n); d.bad || length > uint64(len(d.b)) {
		d.bad = true
		return ""
	}
	field := d.b[:length]
	d.b = d.b[length:]
	if !shared {
		return string(field)
	}
	text, known := d.shared[string(field)]
	if !known {
		text = string(field)
		d.shared[text] = text
	}
	return text
}
