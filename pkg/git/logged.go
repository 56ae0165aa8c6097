// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/text/encoding/charmap"
)

// LoggedCommit is a commit that was read. Its texts are valid UTF-8: those in a
// single-byte encoding that the commit names are converted, and what cannot be is
// replaced by U+FFFD.
type LoggedCommit struct {
	Hash    string
	Parents []string
	// Author and Committer as they stand in the commit: without what is missing, and
	// with the zero time for one that cannot be read. When has the zone of the commit.
	Author, Committer Signature
	// Message is all of it, with its line breaks.
	Message string
	// Files that differ from the first parent, or from nothing, below the directory
	// that was asked for, in the order of git diff: by the bytes of the path.
	Files []ChangedFile
	// FilesTruncated says that there are more of them.
	FilesTruncated bool
}

// decodeCommit reads what it can of a commit object: history holds commits that
// today's git would not make.
func decodeCommit(h plumbing.Hash, data []byte) LoggedCommit {
	header, message, _ := bytes.Cut(data, []byte("\n\n"))
	if rest, ok := bytes.CutPrefix(data, []byte("\n")); ok {
		header, message = nil, rest
	}
	c := LoggedCommit{Hash: h.String()}
	var author, committer, charset string
	for line := range strings.SplitSeq(string(header), "\n") {
		name, value, _ := strings.Cut(line, " ")
		switch name {
		case "parent":
			c.Parents = append(c.Parents, value)
		case "author":
			author = value
		case "committer":
			committer = value
		case "encoding":
			charset = value
		}
	}
	decode := textDecoder(charset)
	c.Author, c.Committer = parseSignature(author, decode), parseSignature(committer, decode)
	c.Message = decode(string(message))
	return c
}

// textDecoder makes valid UTF-8 of texts in the encoding. Of those that a commit
// can name, the single-byte ones are known.
func textDecoder(encoding string) func(string) string {
	plain := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	if encoding == "" {
		return plain
	}
	for _, known := range charmap.All {
		named, ok := known.(fmt.Stringer)
		if !ok || foldEncoding(named.String()) != foldEncoding(encoding) {
			continue
		}
		return func(s string) string {
			if out, err := known.NewDecoder().String(s); err == nil {
				s = out
			}
			return plain(s)
		}
	}
	return plain
}

// foldEncoding makes one of the ways to write the name of an encoding.
func foldEncoding(name string) string {
	name = strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(name))
	if name == "latin1" {
		return "iso88591"
	}
	if page, ok := strings.CutPrefix(name, "cp125"); ok {
		return "windows125" + page
	}
	return name
}

// parseSignature reads "Name <email> seconds zone". As git does, it takes the time
// from behind the last ">", whatever stands before it.
func parseSignature(line string, decode func(string) string) Signature {
	name, rest, ok := strings.Cut(line, "<")
	s := Signature{Name: decode(strings.TrimSpace(name))}
	if !ok {
		return s
	}
	email, _, closed := strings.Cut(rest, ">")
	s.Email = decode(email)
	if !closed {
		return s
	}
	seconds, zone, _ := strings.Cut(strings.TrimSpace(rest[strings.LastIndexByte(rest, '>')+1:]), " ")
	unix, ok := parseSeconds(seconds)
	if ok && unix <= maxTime {
		s.When = time.Unix(unix, 0).In(parseZone(strings.TrimSpace(zone)))
	}
	return s
}

// maxTime is the last second that has a year of four digits.
const maxTime = 253402300799

func parseSeconds(s string) (unix int64, ok bool) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	unix, err := strconv.ParseInt(s[:digits], 10, 64)
	return unix, err == nil
}

// parseZone reads +hhmm. What is no zone of the Earth, as some tools have written,
// is UTC.
func parseZone(s string) *time.Location {
	n, err := strconv.Atoi(strings.TrimPrefix(s, "+"))
	if err != nil || n <= -1500 || n >= 1500 || n%100 <= -60 || n%100 >= 60 || n == 0 {
		return time.UTC
	}
	return time.FixedZone("", (n/100*60+n%100)*60)
}

// commitTime is what git log orders by: the committer's time, 0 when there is
// none. It is read only where git looks for it.
func commitTime(data []byte) int64 {
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		if value, ok := bytes.CutPrefix(line, []byte("committer ")); ok {
			i := bytes.LastIndexByte(value, '>')
			unix, _ := parseSeconds(strings.TrimLeft(string(value[i+1:]), " \t"))
			return max(0, unix)
		}
		if len(line) == 0 {
			break
		}
	}
	return 0
}
