// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
)

const (
	// maxText bounds what is kept of the remote's words.
	maxText = 4096
	// maxReport bounds what is read of a report.
	maxReport = 1 << 20
)

// update asks the remote to move one branch from old to new, if it still is
// where old says. A zero old means that the branch must not exist.
type update struct {
	branch   string
	old, new plumbing.Hash
	pack     []byte
}

func (u update) ref() string { return branchPrefix + u.branch }

// encode writes the request for what the remote offers. Sideband is asked for
// because the words of hooks come on it, quiet because nothing else then does.
// report-status-v2 is not: it adds nothing that is needed here.
func (u update) encode(caps capabilities) []byte {
	wanted := caps.supported("report-status", "side-band-64k", "quiet")
	if caps.has("object-format") {
		wanted = append(wanted, "object-format=sha1")
	}
	if caps.has("agent") {
		wanted = append(wanted, "agent=kommit")
	}
	b := make([]byte, 0, len(u.pack)+512)
	b = appendPacket(b, fmt.Sprintf("%s %s %s\x00 %s", u.old, u.new, u.ref(), strings.Join(wanted, " ")))
	b = appendFlush(b)
	return append(b, u.pack...)
}

// report is what the remote said about an update.
type report struct {
	// landed and refused are our ref's own line; both false: there was none.
	landed, refused bool
	// unpackFailed: the report says that the pack could not be taken in.
	unpackFailed bool
	// reason stands on our ref's line, or on the one about the pack.
	reason string
	// complete: the answer was read to its proper end.
	complete bool
	// text is what hooks and the server said besides.
	text string
}

// describe is the remote's refusal in its own words.
func (r report) describe() string {
	switch {
	case r.text == "":
		return r.reason
	case r.reason == "":
		return r.text
	}
	return r.text + "\n" + r.reason
}

// readReport reads the answer to an update of ref. It takes it with or without
// sideband and with the lines of report-status-v2; what it cannot read it leaves
// out, because the only question is whether our ref's own line is there (G4).
func readReport(r io.Reader, ref string) report {
	var lines, text bytes.Buffer
	p := newPacketReader(io.LimitReader(r, maxReport))
	complete := false
	for {
		payload, flush, err := p.next()
		if err != nil {
			var said *remoteError
			if errors.As(err, &said) {
				text.WriteString(said.text)
			}
			complete = said != nil || errors.Is(err, io.EOF)
			break
		}
		if flush || len(payload) == 0 {
			continue
		}
		switch {
		case payload[0] == 1:
			lines.Write(payload[1:])
		case payload[0] == 2 || payload[0] == 3:
			text.Write(payload[1:])
		case bytes.HasPrefix(payload, []byte("ERR ")):
			text.Write(payload[4:])
		default:
			// No sideband: the line is itself a part of the report.
			lines.Write(appendPacket(nil, string(payload)))
		}
	}
	out := report{text: text.String(), complete: complete}
	unpacked := ""
	inner := newPacketReader(&lines)
	for {
		payload, flush, err := inner.next()
		if err != nil {
			break
		}
		if flush {
			continue
		}
		line := strings.TrimRight(string(payload), "\r\n")
		switch rest, _ := strings.CutPrefix(line, "ng "+ref); {
		case line == "ok "+ref:
			out.landed = true
		case rest != line && (rest == "" || rest[0] == ' '):
			out.refused, out.reason = true, strings.TrimSpace(rest)
		case strings.HasPrefix(line, "unpack ") && line != "unpack ok":
			out.unpackFailed, unpacked = true, line
		}
	}
	if out.reason == "" {
		out.reason = unpacked
	} else if unpacked != "" {
		out.reason = unpacked + ", " + out.reason
	}
	if out.refused {
		out.landed = false
	}
	return out
}

// cleanText makes the words of a remote fit for a condition: whole lines without
// terminal sequences and overwritten progress, within maxText bytes.
func cleanText(s string) string {
	var lines []string
	size := 0
	for line := range strings.SplitSeq(strings.ToValidUTF8(s, "\uFFFD"), "\n") {
		line = strings.TrimRight(line, "\r")
		if i := strings.LastIndexByte(line, '\r'); i >= 0 {
			line = line[i+1:]
		}
		line = strings.TrimSpace(stripEscapes(line))
		if line == "" {
			continue
		}
		if size += len(line) + 1; size > maxText {
			lines = append(lines, "…")
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// stripEscapes drops ANSI sequences and control characters.
func stripEscapes(s string) string {
	var b strings.Builder
	sequence := false
	for i, r := range s {
		switch {
		case sequence:
			// ESC [ parameters letter
			if r != '[' && (unicode.IsLetter(r) || r == '~') {
				sequence = false
			}
		case r == 0x1b:
			sequence = i+1 < len(s) && s[i+1] == '['
		case r == '\t':
			b.WriteByte(' ')
		case unicode.IsControl(r):
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
