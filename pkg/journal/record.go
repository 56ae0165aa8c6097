// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
)

// A record on disk: a checksum (CRC-32C) of all that follows, the time in
// nanoseconds since 1970, the content.
const recordHeader = 4 + 8

var errDamaged = errors.New("the checksum is wrong")

func encode(at time.Time, record []byte) []byte {
	b := make([]byte, 4, recordHeader+len(record))
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixNano()))
	b = append(b, record...)
	binary.BigEndian.PutUint32(b, checksum(b[4:]))
	return b
}

// decode returns a record that shares its memory with b.
func decode(b []byte) (at time.Time, record []byte, err error) {
	if len(b) < recordHeader || binary.BigEndian.Uint32(b) != checksum(b[4:]) {
		return time.Time{}, nil, errDamaged
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(b[4:]))), b[recordHeader:], nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
