// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/storage"
)

// formatVersion is the layout of the file, kept under formatKey in the meta
// bucket. Raise it when an older binary could no longer read what is written.
const formatVersion = 1

// Top-level buckets. Other packages name theirs through DB.Update.
var (
	metaBucket      = []byte("meta")
	resourcesBucket = []byte("resources")
	expiryBucket    = []byte("expiry")
)

// Keys and buckets inside one resource's bucket. The bucket's own sequence is
// the resource's revision.
var (
	objectsBucket = []byte("objects") // key → object
	logBucket     = []byte("log")     // revision → record
	historyBucket = []byte("history") // key NUL revision → nothing
	compactedKey  = []byte("compacted")
	summaryKey    = []byte("summary")
)

var formatKey = []byte("format")

// object is the current state of one key.
type object struct {
	rev    uint64
	expiry int64  // Unix nanoseconds; 0 never
	value  []byte // nil, at a revision: not what was written, see store.intact
	size   int    // of the value as stored
}

// objectHeader is a checksum of key, revision and expiry, these two, and a
// checksum of it all. bbolt has no checksums, and a flipped bit in a value may
// well decode. As long as the first one is right it is certain which object is
// damaged, and that one can be named and removed.
const (
	objectHeader = objectSum + 4
	objectSum    = 4 + 8 + 8 // where the second checksum is
)

// encodeObject returns the stored form and, inside it, the value: both live on
// the heap, so the value outlives the transaction.
func encodeObject(key string, o object) (stored, value []byte) {
	stored = make([]byte, objectHeader+len(o.value))
	binary.BigEndian.PutUint64(stored[4:], o.rev)
	binary.BigEndian.PutUint64(stored[12:], uint64(o.expiry))
	binary.BigEndian.PutUint32(stored, checksum([]byte(key), stored[4:objectSum]))
	copy(stored[objectHeader:], o.value)
	binary.BigEndian.PutUint32(stored[objectSum:], checksum(stored[:objectSum], o.value))
	return stored, stored[objectHeader:len(stored):len(stored)]
}

// decodeObject aliases b.
func decodeObject(key, b []byte) (object, error) {
	if len(b) < objectHeader || binary.BigEndian.Uint32(b) != checksum(key, b[4:objectSum]) {
		return object{}, &damage{what: fmt.Sprintf("object %s", key)}
	}
	o := object{
		rev:    binary.BigEndian.Uint64(b[4:]),
		expiry: int64(binary.BigEndian.Uint64(b[12:])),
		value:  b[objectHeader:],
		size:   len(b) - objectHeader,
	}
	if binary.BigEndian.Uint32(b[objectSum:]) != checksum(b[:objectSum], o.value) {
		o.value = nil
	}
	return o, nil
}

func checksum(parts ...[]byte) uint32 {
	table, sum := crc32.MakeTable(crc32.Castagnoli), uint32(0)
	for _, p := range parts {
		sum = crc32.Update(sum, table, p)
	}
	return sum
}

// record is one write in the log: what it did, and what it replaced. The new
// value is not in it: it is in objects, or in the record of the next write to
// the same key. So every value is stored once, and dropping the records up to a
// revision drops exactly the values that no later revision shows.
type record struct {
	key       string
	deleted   bool
	at        int64  // Unix nanoseconds, for compaction by age
	prevRev   uint64 // 0: the key did not exist before
	prevValue []byte // nil, at a revision: was damaged when it was replaced
}

// recordHeader is a checksum, flags, the time and the previous revision.
const recordHeader = 4 + 1 + 8 + 8

const (
	flagDeleted = 1 << iota
	flagPrevDamaged
)

func encodeRecord(rev uint64, r record) []byte {
	b := make([]byte, 4, recordHeader+binary.MaxVarintLen64+len(r.key)+len(r.prevValue))
	flags := byte(0)
	if r.deleted {
		flags |= flagDeleted
	}
	if r.prevRev != 0 && r.prevValue == nil {
		flags |= flagPrevDamaged
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(r.at))
	b = binary.BigEndian.AppendUint64(b, r.prevRev)
	b = binary.AppendUvarint(b, uint64(len(r.key)))
	b = append(b, r.key...)
	b = append(b, r.prevValue...)
	binary.BigEndian.PutUint32(b, checksum(revisionKey(rev), b[4:]))
	return b
}

// decodeRecord aliases b in prevValue.
func decodeRecord(rev uint64, b []byte) (record, error) {
	damaged := &damage{what: fmt.Sprintf("record of revision %d", rev)}
	if len(b) < recordHeader || binary.BigEndian.Uint32(b) != checksum(revisionKey(rev), b[4:]) {
		return record{}, damaged
	}
	r := record{
		deleted: b[4]&flagDeleted != 0,
		at:      int64(binary.BigEndian.Uint64(b[5:])),
		prevRev: binary.BigEndian.Uint64(b[13:]),
	}
	prevDamaged := b[4]&flagPrevDamaged != 0
	b = b[recordHeader:]
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return record{}, damaged
	}
	b = b[size:]
	if r.key = string(b[:n]); !prevDamaged {
		r.prevValue = b[n:]
	}
	return r, nil
}

func revisionKey(rev uint64) []byte { return binary.BigEndian.AppendUint64(nil, rev) }

func parseRevision(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// historyKey sorts as (key, rev), because prepareKey lets no key contain NUL,
// the smallest byte.
func historyKey(key string, rev uint64) []byte {
	b := make([]byte, 0, len(key)+9)
	b = append(b, key...)
	b = append(b, 0)
	return binary.BigEndian.AppendUint64(b, rev)
}

// historyFrom is where the history of the keys from from on begins. A key with
// NUL appended means "after this key", which in history is after all its
// revisions.
func historyFrom(from string) []byte {
	b := []byte(from)
	if strings.HasSuffix(from, "\x00") {
		b = append(b, bytes.Repeat([]byte{0xff}, 8)...)
	}
	return b
}

func splitHistoryKey(b []byte) (key []byte, rev uint64, ok bool) {
	if len(b) < 9 || b[len(b)-9] != 0 {
		return nil, 0, false
	}
	return b[:len(b)-9], binary.BigEndian.Uint64(b[len(b)-8:]), true
}

// expiryKey sorts by time first, so the next object to expire is the first one.
func expiryKey(at int64, resource, key string) []byte {
	b := make([]byte, 0, 9+len(resource)+len(key))
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = append(b, resource...)
	b = append(b, 0)
	return append(b, key...)
}

func splitExpiryKey(b []byte) (at int64, resource, key string, ok bool) {
	if len(b) < 9 {
		return 0, "", "", false
	}
	name, rest, found := bytes.Cut(b[8:], []byte{0})
	return int64(binary.BigEndian.Uint64(b)), string(name), string(rest), found
}

// expiryOf is when an object written now with this time to live goes; ttl is in
// seconds, 0 never.
func expiryOf(now time.Time, ttl uint64) int64 {
	if ttl == 0 {
		return 0
	}
	const longest = uint64(100 * 365 * 24 * 60 * 60) // keeps time.Duration from overflowing
	return now.Add(time.Duration(min(ttl, longest)) * time.Second).UnixNano()
}

// prepareKey is the key as stored: checked, under the resource's prefix, and
// joined to the path prefix.
func (s *store) prepareKey(key string, recursive bool) (string, error) {
	key, err := storage.PrepareKey(s.resourcePrefix, key, recursive)
	if err != nil {
		return "", err
	}
	if strings.IndexByte(key, 0) >= 0 {
		return "", fmt.Errorf("invalid key: %q", key)
	}
	return s.pathPrefix + strings.TrimPrefix(key, "/"), nil
}

// prefixEnd is the first key after all those that start with prefix; "" when
// there is none.
func prefixEnd(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}
