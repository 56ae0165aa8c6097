// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// fetchRequest asks for objects by hash.
type fetchRequest struct {
	wants []plumbing.Hash
	// haves are commits whose trees need not be sent again. What the cache has lost
	// of them since is fetched by hash when it is needed.
	haves []plumbing.Hash
	// depth of history; 0 sends none that is not wanted itself.
	depth int
	// filter as in git rev-list --filter; sent only to a remote that offers it.
	filter string
	// limit of what the answer may unfold to in memory; 0 is maxPackInflated. More
	// than a lower one is errTooLarge, unless the filter could not be sent: then the
	// remote decides how much it is.
	limit int64
}

const (
	filterBlobs = "blob:none"
	filterTrees = "tree:0"
)

// errNotThere says that the remote does not give out a wanted object: it is
// gone, or the remote serves only what a ref points at.
var errNotThere = errors.New("the remote does not serve the object")

// fetch runs one exchange on a session of upload-pack and returns what was sent.
func fetch(ctx context.Context, s session, req fetchRequest, base func(plumbing.Hash) (object, bool)) (map[plumbing.Hash]object, error) {
	answer, err := s.exchange(ctx, req.encode(s.advertised().capabilities))
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Close() }()
	pack, err := packStream(answer)
	if err != nil {
		return nil, fetchError(s, err)
	}
	if req.filter != "" && !s.advertised().capabilities.has("filter") {
		req.limit = 0
	}
	objects, err := decodePack(pack, base, req.limit)
	if err != nil {
		return nil, fetchError(s, err)
	}
	return objects, nil
}

func fetchError(s session, err error) error {
	var said *remoteError
	var unsupported *UnsupportedError
	switch {
	case errors.Is(err, errTooLarge):
		return errTooLarge
	case errors.As(err, &unsupported):
		return unsupported
	case errors.As(err, &said):
		return fmt.Errorf("%w: %s", errNotThere, cleanText(s.redact(said.text)))
	}
	return &UnreachableError{Err: fmt.Errorf("fetching: %w", err)}
}

// encode writes the request in the original protocol, which every server speaks.
// Some insist on multi_ack, so the best one offered is named although one round
// is all there is.
func (f fetchRequest) encode(caps capabilities) []byte {
	wanted := caps.supported("side-band-64k", "ofs-delta", "no-progress")
	for _, ack := range []string{"multi_ack_detailed", "multi_ack"} {
		if caps.has(ack) {
			wanted = append(wanted, ack)
			break
		}
	}
	if f.depth > 0 {
		wanted = append(wanted, caps.supported("shallow")...)
	}
	filter := f.filter
	if !caps.has("filter") {
		filter = ""
	}
	if filter != "" {
		wanted = append(wanted, "filter")
	}
	if caps.has("agent") {
		wanted = append(wanted, "agent=kommit")
	}
	var b []byte
	for i, w := range f.wants {
		line := "want " + w.String()
		if i == 0 {
			line += " " + strings.Join(wanted, " ")
		}
		b = appendPacket(b, line+"\n")
	}
	if f.depth > 0 && caps.has("shallow") {
		b = appendPacket(b, fmt.Sprintf("deepen %d\n", f.depth))
	}
	if filter != "" {
		b = appendPacket(b, "filter "+filter+"\n")
	}
	b = appendFlush(b)
	for _, h := range f.haves {
		b = appendPacket(b, "have "+h.String()+"\n")
	}
	return appendPacket(b, "done\n")
}

// packStream reads past the lines about shallow commits and common ones and
// returns the pack, taken out of its sideband if there is one.
func packStream(r io.Reader) (io.Reader, error) {
	p := newPacketReader(r)
	for {
		if start, err := p.r.Peek(4); err == nil && string(start) == "PACK" {
			return p.r, nil
		}
		payload, flush, err := p.next()
		if err != nil {
			return nil, fmt.Errorf("before the pack: %w", err)
		}
		switch {
		case flush, bytes.HasPrefix(payload, []byte("shallow ")), bytes.HasPrefix(payload, []byte("unshallow ")),
			bytes.HasPrefix(payload, []byte("ACK ")), bytes.HasPrefix(payload, []byte("NAK")):
		case bytes.HasPrefix(payload, []byte("ERR ")):
			return nil, &remoteError{string(payload[4:])}
		default:
			s := &sideband{p: p}
			if err := s.take(payload); err != nil {
				return nil, err
			}
			return s, nil
		}
	}
}

// sideband reads band 1 of a multiplexed stream.
type sideband struct {
	p    *packetReader
	left []byte
	done bool
}

func (s *sideband) Read(b []byte) (int, error) {
	for len(s.left) == 0 {
		if s.done {
			return 0, io.EOF
		}
		payload, flush, err := s.p.next()
		if err != nil {
			return 0, err
		}
		if flush {
			s.done = true
			continue
		}
		if err := s.take(payload); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *sideband) take(payload []byte) error {
	switch {
	case len(payload) == 0:
	case payload[0] == 1:
		s.left = payload[1:]
	case payload[0] == 2: // progress
	case payload[0] == 3:
		return &remoteError{string(payload[1:])}
	default:
		return fmt.Errorf("%w: band %d", errPacket, payload[0])
	}
	return nil
}
