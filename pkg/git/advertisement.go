// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxAdvertisement bounds what is read of one: about a million refs.
const maxAdvertisement = 128 << 20

// capabilities are what the remote offers, by name, with the value if it has one.
type capabilities map[string]string

func (c capabilities) has(name string) bool {
	_, ok := c[name]
	return ok
}

// supported returns those of the names that the remote offers.
func (c capabilities) supported(names ...string) []string {
	var s []string
	for _, n := range names {
		if c.has(n) {
			s = append(s, n)
		}
	}
	return s
}

// advertisement is where the remote's branches are, and what it can do.
type advertisement struct {
	capabilities capabilities
	branches     map[string]plumbing.Hash
}

// tip is the zero hash when the remote does not have the branch.
func (a *advertisement) tip(branch string) plumbing.Hash {
	return a.branches[branch]
}

// remoteError is the words by which the remote ends the conversation.
type remoteError struct{ text string }

func (e *remoteError) Error() string { return e.text }

const branchPrefix = "refs/heads/"

// parseAdvertisement reads the refs that a service lists first, in the original
// protocol: with or without the service header of HTTP, with or without a
// version line. A repository without refs, and even one that sends nothing but
// the flush, is an empty one.
func parseAdvertisement(r io.Reader) (*advertisement, error) {
	p := newPacketReader(io.LimitReader(r, maxAdvertisement))
	a := &advertisement{capabilities: capabilities{}, branches: map[string]plumbing.Hash{}}
	header, headerEnded, first := false, false, true
	for {
		payload, flush, err := p.next()
		if errors.Is(err, io.EOF) && header {
			return a, nil // the flush that ends an empty list was left out
		}
		if err != nil {
			return nil, fmt.Errorf("reading the list of refs: %w", err)
		}
		if flush {
			if header && !headerEnded && first {
				headerEnded = true // the list follows
				continue
			}
			return a, nil
		}
		line := strings.TrimSuffix(string(payload), "\n")
		switch {
		case strings.HasPrefix(line, "# service="):
			header = true
			continue
		case strings.HasPrefix(line, "version "):
			continue
		case strings.HasPrefix(line, "ERR "):
			return nil, &remoteError{strings.TrimPrefix(line, "ERR ")}
		case strings.HasPrefix(line, "shallow "):
			continue
		}
		if first {
			first = false
			var list string
			line, list, _ = strings.Cut(line, "\x00")
			for c := range strings.FieldsSeq(list) {
				name, value, _ := strings.Cut(c, "=")
				a.capabilities[name] = value
			}
		}
		hash, ref, ok := strings.Cut(line, " ")
		if format := a.capabilities["object-format"]; (format != "" && format != "sha1") || len(hash) == 64 {
			return nil, &UnsupportedError{What: "a repository with SHA-256 object names; only SHA-1 repositories can be written to"}
		}
		if !ok || !plumbing.IsHash(hash) {
			return nil, fmt.Errorf("reading the list of refs: %w", errPacket)
		}
		if branch, ok := strings.CutPrefix(ref, branchPrefix); ok {
			a.branches[branch] = plumbing.NewHash(hash)
		}
	}
}
