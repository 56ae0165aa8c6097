// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// counters say how much a resource holds.
type counters struct {
	count int64 // objects
	bytes int64 // their stored values
}

// summary is what a resource's bucket says about its content. It is written
// with every commit and compared at Open. Checksums find what has changed;
// they cannot find what is not there any more, nor a page as it was some
// commits ago, which is what a flipped page number may lead to in a file that
// is written copy-on-write.
type summary struct {
	counters
	compacted uint64
	objects   digest
	history   digest
}

// digest identifies a set of (key, revision), whatever the order.
type digest uint64

// toggle adds an element, or takes it out again.
func (d *digest) toggle(key string, rev uint64) {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	for shift := 0; shift < 64; shift += 8 {
		h = (h ^ (rev>>shift)&0xff) * prime
	}
	*d ^= digest(h)
}

// summarySize is two counters, two digests and a checksum.
const summarySize = 4*8 + 4

// write stores the summary, and rev as the sequence, into the bucket of the
// resource name.
func (s summary) write(root *bbolt.Bucket, name string, rev uint64) error {
	b := make([]byte, 0, summarySize)
	b = binary.BigEndian.AppendUint64(b, uint64(s.count))
	b = binary.BigEndian.AppendUint64(b, uint64(s.bytes))
	b = binary.BigEndian.AppendUint64(b, uint64(s.objects))
	b = binary.BigEndian.AppendUint64(b, uint64(s.history))
	b = binary.BigEndian.AppendUint32(b, summaryChecksum(b, name, rev, s.compacted))
	return errors.Join(root.SetSequence(rev), root.Put(compactedKey, revisionKey(s.compacted)), root.Put(summaryKey, b))
}

// readSummary reads what write has written. The checksum includes the name, the
// sequence and the compacted revision: with another name objects would be gone,
// with another sequence revisions would come twice.
func readSummary(root *bbolt.Bucket, name string) (summary, error) {
	b, s := root.Get(summaryKey), summary{compacted: parseRevision(root.Get(compactedKey))}
	if len(b) != summarySize || binary.BigEndian.Uint32(b[summarySize-4:]) != summaryChecksum(b[:summarySize-4], name, root.Sequence(), s.compacted) {
		return summary{}, &damage{what: fmt.Sprintf("summary of %q", name)}
	}
	s.count = int64(binary.BigEndian.Uint64(b))
	s.bytes = int64(binary.BigEndian.Uint64(b[8:]))
	s.objects = digest(binary.BigEndian.Uint64(b[16:]))
	s.history = digest(binary.BigEndian.Uint64(b[24:]))
	return s, nil
}

func summaryChecksum(b []byte, name string, rev, compacted uint64) uint32 {
	return checksum(b, []byte(name), revisionKey(rev), revisionKey(compacted))
}
