// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
)

const (
	// minDelta is the size of an object from which a delta can save anything: a
	// smaller one fits into the same packet of the network.
	minDelta = 1024
	// minSaving is how many times smaller than the object a delta has to be.
	minSaving = 4
	// maxCopy is the longest copy that git itself writes.
	maxCopy = 0xffff
	// maxInsert is the longest insertion that the format knows.
	maxInsert = 127
)

// delta writes how target is made from base, an object of the same kind, as a
// pack has it. ok is false when sending target whole is as good.
func delta(base, target object) (_ []byte, ok bool) {
	if len(target.data) < minDelta || len(base.data) == 0 || base.kind != target.kind || int64(len(base.data)) > math.MaxUint32 {
		return nil, false
	}
	w := &deltaWriter{limit: len(target.data) / minSaving}
	w.out = binary.AppendUvarint(w.out, uint64(len(base.data)))
	w.out = binary.AppendUvarint(w.out, uint64(len(target.data)))
	if target.kind == plumbing.TreeObject {
		w.tree(base.data, target.data)
	} else {
		w.splice(base.data, target.data)
	}
	w.flush()
	return w.out, len(w.out) <= w.limit
}

// deltaWriter joins copies that follow each other in the base.
type deltaWriter struct {
	out []byte
	// from and size of the copy that is not written yet.
	from, size int
	// limit of out; what comes after it is not written.
	limit int
}

// splice keeps what base and target have in common at their start and end.
func (w *deltaWriter) splice(base, target []byte) {
	most := min(len(base), len(target))
	start := 0
	for start < most && base[start] == target[start] {
		start++
	}
	end := 0
	for end < most-start && base[len(base)-1-end] == target[len(target)-1-end] {
		end++
	}
	w.copy(0, start)
	w.insert(target[start : len(target)-end])
	w.copy(len(base)-end, end)
}

// tree keeps the entries that both have. Both are in git's order, so that one
// pass finds them however many differ.
func (w *deltaWriter) tree(base, target []byte) {
	at := 0
	for len(target) > 0 && len(w.out) <= w.limit {
		next := entryLength(target)
		entry := target[:next]
		for at < len(base) {
			size := entryLength(base[at:])
			old := base[at : at+size]
			if bytes.Equal(old, entry) {
				w.copy(at, size)
				at, entry = at+size, nil
				break
			}
			if order := compareEntries(old, entry); order > 0 {
				break
			}
			at += size // replaced, or gone
		}
		w.insert(entry)
		target = target[next:]
	}
}

// entryLength is the bytes of a tree's first entry. A malformed one is taken for
// the rest.
func entryLength(tree []byte) int {
	nul := bytes.IndexByte(tree, 0)
	if nul < 0 {
		return len(tree)
	}
	return min(len(tree), nul+1+20)
}

// compareEntries orders entries as they are written in a tree.
func compareEntries(a, b []byte) int {
	return bytes.Compare(sortedAs(a), sortedAs(b))
}

// sortedAs is an entry's name with the byte that it is sorted with.
func sortedAs(entry []byte) []byte {
	mode, rest, _ := bytes.Cut(entry, []byte(" "))
	name, _, _ := bytes.Cut(rest, []byte{0})
	if (treeEntry{mode: string(mode)}).directory() {
		return append(slices.Clip(name), '/')
	}
	return name
}

func (w *deltaWriter) copy(from, size int) {
	if w.size > 0 && from == w.from+w.size {
		w.size += size
		return
	}
	w.flush()
	w.from, w.size = from, size
}

// flush writes the copy that waits: which bytes of the offset and of the size
// follow, as bits of the first byte, then those that are not zero.
func (w *deltaWriter) flush() {
	for w.size > 0 {
		n := min(w.size, maxCopy)
		head := len(w.out)
		w.out = append(w.out, 0x80)
		for i := range 4 {
			if b := byte(w.from >> (8 * i)); b != 0 {
				w.out[head] |= 1 << i
				w.out = append(w.out, b)
			}
		}
		for i := range 2 {
			if b := byte(n >> (8 * i)); b != 0 {
				w.out[head] |= 0x10 << i
				w.out = append(w.out, b)
			}
		}
		w.from, w.size = w.from+n, w.size-n
	}
}

func (w *deltaWriter) insert(data []byte) {
	if len(data) == 0 {
		return
	}
	w.flush()
	for len(data) > 0 && len(w.out) <= w.limit {
		n := min(len(data), maxInsert)
		w.out = append(append(w.out, byte(n)), data[:n]...)
		data = data[n:]
	}
}
