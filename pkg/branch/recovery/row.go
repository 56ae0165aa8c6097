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
	// Onto is where the branch was.
	Onto string `json:",omitempty"`
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

// changeForm is the version of the form, which has so many strings.
const (
	changeForm     = 1
	fieldsOfChange = 10
)

const (
	unresolvedFlag = 1 << iota
	manifestFlag
)

func (r changeRow) encode() []byte {
	c := r.change
	fields := [fieldsOfChange]string{
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
	rest   []byte // of the row
	bad    bool
}

// decode fills r. Its strings and its manifest share two allocations.
func (d *decoder) decode(row []byte, r *changeRow) error {
	if len(row) < 2 || row[0] != changeForm {
		return errForm
	}
	flags := row[1]
	d.rest, d.bad = row[2:], false
	r.index = int(d.number(binary.Uvarint(d.rest)))
	nanoseconds, n := binary.Varint(d.rest)
	d.number(0, n)
	r.at = time.Unix(0, nanoseconds)
	var fields [fieldsOfChange][]byte
	for i := range fields {
		fields[i] = d.next(d.number(binary.Uvarint(d.rest)))
	}
	if d.bad {
		return errForm
	}
	own := string(row[:len(row)-len(d.rest)])
	part := func(i int) string { // of this row alone
		end := cap(row) - cap(fields[i]) + len(fields[i])
		return own[end-len(fields[i]) : end]
	}
	c := &r.change
	c.Target.Namespace, c.Target.Name = d.share(fields[0]), d.share(fields[1])
	c.Object.Group, c.Object.Resource, c.Object.Namespace, c.Object.Name = d.share(fields[2]), d.share(fields[3]), d.share(fields[4]), part(5)
	c.UID, c.ResourceVersion = types.UID(part(6)), part(7)
	c.Author.Username, c.Operation = d.share(fields[8]), window.Operation(d.share(fields[9]))
	c.Author.Unresolved = flags&unresolvedFlag != 0
	if flags&manifestFlag != 0 {
		c.Manifest = append([]byte{}, d.rest...)
	}
	return nil
}

// number steps over one that was n bytes long.
func (d *decoder) number(value uint64, n int) uint64 {
	if n <= 0 || n > len(d.rest) {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return value
}

// next steps over so many bytes.
func (d *decoder) next(length uint64) []byte {
	if length > uint64(len(d.rest)) {
		d.bad, d.rest = true, nil
	}
	length = min(length, uint64(len(d.rest)))
	field := d.rest[:length]
	d.rest = d.rest[length:]
	return field
}

func (d *decoder) share(field []byte) string {
	text, known := d.shared[string(field)]
	if !known {
		text = string(field)
		d.shared[text] = text
	}
	return text
}
