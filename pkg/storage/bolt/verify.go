// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// bbolt's file format, version 2: fixed, in the byte order of the machines it runs on.
const (
	pageHeader    = 16 // id u64, flags u16, count u16, overflow u32
	elementHeader = 16 // leaf: flags, pos, ksize, vsize u32; branch: pos, ksize u32, id u64
	bucketHeader  = 16 // root id u64, sequence u64; root 0: the page follows inline
	branchPage    = 0x01
	leafPage      = 0x02
	freelistPage  = 0x10
	bucketElement = 0x01
	metaMagic     = 0xED0CDAED
	metaSum       = 56 // offset of the checksum in a meta
	noFreelist    = math.MaxUint64
)

// verifyFile walks every page of the tree. bbolt does so too when it opens the
// file, but panics, in a goroutine of its own, on what it cannot make sense of:
// no recover helps then. Errors: *LockedError, *CorruptFileError.
func verifyFile(path string, lockTimeout time.Duration) (err error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || (err == nil && info.Size() == 0) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("storage file %s: %w", path, err)
	}
	// Read-only: the lock is held, and the tree not walked.
	locked, err := openBolt(path, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locked.Close()) }()
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("storage file %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	v := &verifier{file: f, size: info.Size(), pageSize: int64(locked.Info().PageSize)}
	if err := v.run(); err != nil {
		return &CorruptFileError{Path: path, Err: err}
	}
	return nil
}

type verifier struct {
	file     io.ReaderAt
	size     int64
	pageSize int64
	end      uint64 // the first page that was never used
	free     uint64 // where the list of free pages is
	seen     []bool // by page
}

func (v *verifier) run() error {
	root, err := v.meta()
	if err != nil {
		return err
	}
	if v.end > uint64(v.size/v.pageSize) {
		return fmt.Errorf("it is cut short: %d bytes, %d pages of %d bytes are in use", v.size, v.end, v.pageSize)
	}
	v.seen = make([]bool, v.end)
	if err := v.tree(root, 0, bounds{}); err != nil {
		return err
	}
	return v.freelist()
}

// freelist reads the list of free pages. This package writes none, but another
// program that has compacted or repaired the file does, and bbolt believes it: a
// page of the tree that it calls free is written over.
func (v *verifier) freelist() error {
	if v.free == noFreelist {
		return nil
	}
	page, err := v.page(v.free)
	if err != nil {
		return fmt.Errorf("list of free pages, page %d: %w", v.free, err)
	}
	first, count := uint64(0), uint64(binary.NativeEndian.Uint16(page[10:]))
	if count == math.MaxUint16 { // then the first element is the count
		first, count = 1, binary.NativeEndian.Uint64(page[pageHeader:])
	}
	if flags := binary.NativeEndian.Uint16(page[8:]); flags != freelistPage || first+count > uint64(len(page)-pageHeader)/8 {
		return fmt.Errorf("page %d is no list of free pages", v.free)
	}
	for i := first; i < first+count; i++ {
		id := binary.NativeEndian.Uint64(page[pageHeader+8*i:])
		if id < 2 || id >= v.end || v.seen[id] {
			return fmt.Errorf("the list of free pages has page %d, which is not free", id)
		}
		v.seen[id] = true
	}
	if i := slices.Index(v.seen[2:], false); i >= 0 {
		return fmt.Errorf("the list of free pages lacks page %d", i+2)
	}
	return nil
}

// meta reads the newer one of the two meta pages. bbolt would go on with the
// older one when the newer is damaged, one commit back: an acknowledged write
// would be gone, and its revision given out again (D5). A power cut does not do
// that, since a meta lies in one sector.
func (v *verifier) meta() (root uint64, err error) {
	var newest uint64
	for page := range int64(2) {
		b := make([]byte, pageHeader+metaSum+8)
		if _, err := v.file.ReadAt(b, page*v.pageSize); err != nil {
			return 0, fmt.Errorf("meta page %d: %w", page, err)
		}
		m := b[pageHeader:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaSum]) // a hash does not fail
		txid := binary.NativeEndian.Uint64(m[48:])
		if binary.NativeEndian.Uint32(m) != metaMagic || binary.NativeEndian.Uint64(m[metaSum:]) != sum.Sum64() {
			return 0, fmt.Errorf("meta page %d is damaged, so the newest commit may be missing", page)
		}
		if txid >= newest {
			newest, root = txid, binary.NativeEndian.Uint64(m[16:])
			v.free, v.end = binary.NativeEndian.Uint64(m[32:]), binary.NativeEndian.Uint64(m[40:])
		}
	}
	return root, nil
}

// maxDepth is far beyond what a B+tree of this page size can reach.
const maxDepth = 64

// bounds is where the keys of a page may lie: [first, end), nil: anywhere.
type bounds struct{ first, end []byte }

func (b *bounds) next(key []byte) error {
	if (b.first != nil && bytes.Compare(key, b.first) < 0) || (b.end != nil && bytes.Compare(key, b.end) >= 0) {
		return errors.New("has a key out of order")
	}
	return nil
}

func (v *verifier) tree(id uint64, depth int, keys bounds) error {
	if depth > maxDepth {
		return fmt.Errorf("page %d: the tree is too deep", id)
	}
	page, err := v.page(id)
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if err := v.elements(page, depth, keys); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// page reads a page with its overflow, each page at most once.
func (v *verifier) page(id uint64) ([]byte, error) {
	if id < 2 || id >= v.end {
		return nil, errors.New("is out of bounds")
	}
	b := make([]byte, v.pageSize)
	offset := int64(id) * v.pageSize
	if _, err := v.file.ReadAt(b, offset); err != nil {
		return nil, err
	}
	if own := binary.NativeEndian.Uint64(b); own != id {
		return nil, fmt.Errorf("calls itself %d", own)
	}
	overflow := uint64(binary.NativeEndian.Uint32(b[12:]))
	if overflow >= v.end-id {
		return nil, errors.New("ends out of bounds")
	}
	for i := range overflow + 1 {
		if v.seen[id+i] {
			return nil, errors.New("is used twice")
		}
		v.seen[id+i] = true
	}
	if overflow == 0 {
		return b, nil
	}
	b = append(b, make([]byte, int64(overflow)*v.pageSize)...)
	_, err := v.file.ReadAt(b[v.pageSize:], offset+v.pageSize)
	return b, err
}

func (v *verifier) elements(page []byte, depth int, keys bounds) error {
	flags, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	if flags != branchPage && flags != leafPage {
		return fmt.Errorf("is of unknown type %#x", flags)
	}
	if pageHeader+count*elementHeader > len(page) {
		return errors.New("has more elements than fit")
	}
	for i := range count {
		e := page[pageHeader+i*elementHeader:]
		key, value, err := cut(e, flags)
		if err == nil {
			err = keys.next(key)
		}
		if err != nil {
			return err
		}
		switch {
		case flags == branchPage:
			child := bounds{first: key, end: keys.end}
			if i+1 < count {
				if child.end, _, err = cut(page[pageHeader+(i+1)*elementHeader:], flags); err != nil {
					return err
				}
			}
			err = v.tree(binary.NativeEndian.Uint64(e[8:]), depth+1, child)
		case binary.NativeEndian.Uint32(e)&bucketElement != 0:
			err = v.bucket(value, depth)
		}
		if err != nil {
			return err
		}
		keys.first = append(bytes.Clone(key), 0) // the next key is greater
	}
	return nil
}

// cut returns the key and the value of an element.
func cut(e []byte, flags uint16) (key, value []byte, err error) {
	pos, ksize, vsize := binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:]), uint32(0)
	if flags == leafPage {
		pos, ksize, vsize = binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:]), binary.NativeEndian.Uint32(e[12:])
	}
	middle := uint64(pos) + uint64(ksize)
	if middle+uint64(vsize) > uint64(len(e)) {
		return nil, nil, errors.New("has an element out of bounds")
	}
	return e[pos:middle], e[middle : middle+uint64(vsize)], nil
}

func (v *verifier) bucket(b []byte, depth int) error {
	if len(b) < bucketHeader {
		return errors.New("is shorter than its header")
	}
	if root := binary.NativeEndian.Uint64(b); root != 0 {
		return v.tree(root, depth+1, bounds{})
	}
	if len(b) < bucketHeader+pageHeader {
		return errors.New("is shorter than its page")
	}
	return v.elements(b[bucketHeader:], depth+1, bounds{})
}
