// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// maxPacket is the longest pkt-line, its four length digits included.
const maxPacket = 65520

// packetReader reads pkt-lines. The slice it returns is valid until the next read.
type packetReader struct {
	r   *bufio.Reader
	buf []byte
}

func newPacketReader(r io.Reader) *packetReader {
	return &packetReader{r: bufio.NewReaderSize(r, 32<<10)}
}

var errPacket = errors.New("malformed pkt-line")

// next returns the payload of the next packet; flush is true, and the payload
// nil, for flush, delimiter and response-end packets. At the end of the stream
// it returns io.EOF, within a packet io.ErrUnexpectedEOF.
func (p *packetReader) next() (payload []byte, flush bool, err error) {
	var head [4]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return nil, false, err
	}
	size := 0
	for _, c := range head {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return nil, false, fmt.Errorf("%w: length %q", errPacket, head)
		}
		size = size<<4 | int(c)
	}
	if size < 3 {
		return nil, true, nil
	}
	// The limit is the protocol's; some servers exceed it by a few bytes.
	if size == 3 || size > maxPacket+16 {
		return nil, false, fmt.Errorf("%w: length %d", errPacket, size)
	}
	size -= 4
	if cap(p.buf) < size {
		p.buf = make([]byte, max(size, 1024))
	}
	p.buf = p.buf[:size]
	if _, err := io.ReadFull(p.r, p.buf); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, false, err
	}
	return p.buf, false, nil
}

// appendPacket appends one pkt-line. The payload is ours and always short.
func appendPacket(b []byte, payload string) []byte {
	return append(fmt.Appendf(b, "%04x", len(payload)+4), payload...)
}

func appendFlush(b []byte) []byte {
	return append(b, "0000"...)
}
