// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

const (
	// scanBuffer is all that is held of a body, whatever its size.
	scanBuffer = 64 << 10
	// maxText bounds a single string that is kept.
	maxText = 1 << 20
	// maxDepth is the nesting that encoding/json accepts.
	maxDepth = 10_000
)

// SyntaxError says that a body is not the JSON that was expected.
type SyntaxError struct {
	// Offset is where, in bytes from the start.
	Offset int64
	// Expected is what should have been there.
	Expected string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("malformed JSON at byte %d: expected %s", e.Offset, e.Expected)
}

// TooLargeError says that a part of a body exceeds its bound.
type TooLargeError struct {
	What  string
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than %d", e.What, e.Limit)
}

// scanner reads one JSON text in a single pass and constant memory: what the caller
// does not ask for is checked and dropped. It accepts exactly what encoding/json
// accepts. Member names are compared case-sensitively by its callers, as Kubernetes
// does. Errors are sticky.
type scanner struct {
	r        io.Reader
	buf      []byte
	pos, end int
	// base is the offset of buf[0].
	base int64
	// limit is the offset that must not be passed; 0 is no limit.
	limit     int64
	limitSize int64
	depth     int
	// open holds the closing bytes of the containers that skip is in.
	open []byte
	// raw is the last string or number that was kept.
	raw []byte
	err error
}

func (s *scanner) reset(r io.Reader) {
	*s = scanner{r: r, buf: s.buf, open: s.open[:0], raw: s.raw[:0]}
	if s.buf == nil {
		s.buf = make([]byte, scanBuffer)
	}
}

func (s *scanner) offset() int64 { return s.base + int64(s.pos) }

// bound allows about size more bytes from here.
func (s *scanner) bound(size int64) {
	s.limit, s.limitSize = s.offset()+size, size
}

func (s *scanner) fail(err error) error {
	if s.err == nil {
		s.err = err
	}
	return s.err
}

func (s *scanner) expected(what string) error {
	return s.fail(&SyntaxError{Offset: s.offset(), Expected: what})
}

// fill reads on; everything before pos is dropped. It reports false at the end and
// after an error.
func (s *scanner) fill() bool {
	if s.err != nil {
		return false
	}
	if s.limit > 0 && s.offset() > s.limit {
		s.err = &TooLargeError{What: "audit event", Limit: s.limitSize}
		return false
	}
	s.base += int64(s.pos)
	s.end = copy(s.buf, s.buf[s.pos:s.end])
	s.pos = 0
	for range 100 {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		if n > 0 {
			return true
		}
		if errors.Is(err, io.EOF) {
			return false
		}
		if err != nil {
			s.err = fmt.Errorf("reading the body: %w", err)
			return false
		}
	}
	s.err = io.ErrNoProgress
	return false
}

// current is the next byte, spaces included; 0 at the end.
func (s *scanner) current() byte {
	if s.pos == s.end && !s.fill() {
		return 0
	}
	return s.buf[s.pos]
}

// peek is the next byte that is not white space; 0 at the end.
func (s *scanner) peek() byte {
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; c {
			case ' ', '\t', '\r', '\n':
				s.pos++
			default:
				return c
			}
		}
		if !s.fill() {
			return 0
		}
	}
}

// take consumes c.
func (s *scanner) take(c byte) error {
	if s.peek() != c || s.pos == s.end {
		return s.expected(string(rune(c)))
	}
	s.pos++
	return nil
}

// ended makes sure that nothing but white space is left.
func (s *scanner) ended() error {
	if s.peek(); s.err == nil && s.pos < s.end {
		return s.expected("the end")
	}
	return s.err
}

// members calls member for each member of the object that comes next; member must
// consume the value, and key is valid until it does. What is not an object is
// skipped.
func (s *scanner) members(member func(key []byte) error) error {
	if s.peek() != '{' {
		return s.skip()
	}
	return s.container('}', func() error {
		if err := s.key(true); err != nil {
			return err
		}
		return member(s.raw)
	})
}

// elements calls element for each element of the array that comes next; element
// must consume it. What is not an array is skipped.
func (s *scanner) elements(element func() error) error {
	if s.peek() != '[' {
		return s.skip()
	}
	return s.container(']', element)
}

// container consumes an object or an array, part by part.
func (s *scanner) container(closing byte, part func() error) error {
	s.pos++
	if s.depth++; s.depth > maxDepth {
		return s.fail(&TooLargeError{What: "nesting", Limit: maxDepth})
	}
	defer func() { s.depth-- }()
	if s.peek() == closing {
		s.pos++
		return nil
	}
	for {
		if err := part(); err != nil {
			return err
		}
		if s.peek() == closing {
			s.pos++
			return nil
		}
		if err := s.take(','); err != nil {
			return err
		}
	}
}

// key consumes a member name and its colon; keep puts the name into raw.
func (s *scanner) key(keep bool) error {
	if err := s.take('"'); err != nil {
		return err
	}
	if err := s.quoted(keep); err != nil {
		return err
	}
	return s.take(':')
}

// text puts the string that comes next into dst; any other value is skipped and
// empties dst.
func (s *scanner) text(dst *string) error {
	*dst = ""
	if s.peek() != '"' {
		return s.skip()
	}
	s.pos++
	if err := s.quoted(true); err != nil {
		return err
	}
	*dst = string(s.raw)
	return nil
}

// integer puts the whole number that comes next into dst; any other value is
// skipped and zeroes dst.
func (s *scanner) integer(dst *int64) error {
	*dst = 0
	if c := s.peek(); c != '-' && (c < '0' || c > '9') {
		return s.skip()
	}
	if err := s.number(); err != nil {
		return err
	}
	if json.Unmarshal(s.raw, dst) != nil {
		*dst = 0
	}
	return nil
}

// skip consumes the value that comes next, whatever it is.
func (s *scanner) skip() error {
	s.open = s.open[:0]
	for {
		switch c := s.peek(); c {
		case '{', '[':
			s.pos++
			s.open = append(s.open, c+2) // '}' and ']' are two after their openers
			if s.depth+len(s.open) > maxDepth {
				return s.fail(&TooLargeError{What: "nesting", Limit: maxDepth})
			}
			if s.peek() == c+2 {
				break
			}
			if c == '{' {
				if err := s.key(false); err != nil {
					return err
				}
			}
			continue
		default:
			if err := s.scalar(c); err != nil {
				return err
			}
		}
		more, err := s.leave()
		if !more {
			return err
		}
	}
}

// leave goes on after a value within skip: it closes what ends, and reports whether
// another value comes.
func (s *scanner) leave() (more bool, err error) {
	for len(s.open) > 0 {
		closing := s.open[len(s.open)-1]
		if s.peek() == closing {
			s.pos++
			s.open = s.open[:len(s.open)-1]
			continue
		}
		if err := s.take(','); err != nil {
			return false, err
		}
		if closing == '}' {
			return true, s.key(false)
		}
		return true, nil
	}
	return false, nil
}

// scalar consumes the string, number or literal that begins with c.
func (s *scanner) scalar(c byte) error {
	switch {
	case c == '"':
		s.pos++
		return s.quoted(false)
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.expected("a value")
}

func (s *scanner) literal(word string) error {
	for i := range len(word) {
		if s.current() != word[i] {
			return s.expected(word)
		}
		s.pos++
	}
	return nil
}

// number consumes a number into raw.
func (s *scanner) number() error {
	s.raw = s.raw[:0]
	if s.current() == '-' {
		s.keep()
	}
	if s.current() == '0' {
		s.keep()
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.current() == '.' {
		s.keep()
		if err := s.digits(); err != nil {
			return err
		}
	}
	if c := s.current(); c == 'e' || c == 'E' {
		s.keep()
		if c := s.current(); c == '+' || c == '-' {
			s.keep()
		}
		return s.digits()
	}
	return s.err
}

func (s *scanner) digits() error {
	if c := s.current(); c < '0' || c > '9' {
		return s.expected("a digit")
	}
	for c := s.current(); '0' <= c && c <= '9'; c = s.current() {
		s.keep()
	}
	return s.err
}

// keep moves the current byte into raw; beyond maxText it is dropped.
func (s *scanner) keep() {
	if len(s.raw) < maxText {
		s.raw = append(s.raw, s.buf[s.pos])
	}
	s.pos++
}

// quoted consumes a string whose opening quote is gone; keep puts its value into
// raw.
func (s *scanner) quoted(keep bool) error {
	if keep {
		s.raw = s.raw[:0]
	}
	plain := true
	for {
		b := s.buf[s.pos:s.end]
		n := 0
		for n < len(b) && b[n] >= ' ' && b[n] != '"' && b[n] != '\\' {
			n++
		}
		if keep {
			if len(s.raw)+n > maxText {
				return s.fail(&TooLargeError{What: "string", Limit: maxText})
			}
			s.raw = append(s.raw, b[:n]...)
		}
		s.pos += n
		switch c := s.current(); {
		case n == len(b) && s.pos < s.end:
			// The buffer was at its end and has been filled.
		case s.pos == s.end || c < ' ':
			return s.expected("the end of a string")
		case c == '"':
			s.pos++
			if !keep {
				return nil
			}
			return s.unquote(plain)
		default:
			plain = false
			if err := s.escape(keep); err != nil {
				return err
			}
		}
	}
}

// escape consumes a backslash and what it escapes.
func (s *scanner) escape(keep bool) error {
	next := func() byte {
		c := s.current()
		if keep && s.pos < s.end {
			s.raw = append(s.raw, c)
		}
		return c
	}
	next()
	s.pos++
	switch next() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			c := next()
			if '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' {
				s.pos++
				continue
			}
			return s.expected("a hexadecimal digit")
		}
		return nil
	}
	return s.expected("an escape")
}

// unquote turns raw from what stood between the quotes into its value.
func (s *scanner) unquote(plain bool) error {
	if plain && utf8.Valid(s.raw) {
		return nil
	}
	s.raw = append(slices.Insert(s.raw, 0, '"'), '"')
	var value string
	if err := json.Unmarshal(s.raw, &value); err != nil {
		return s.fail(fmt.Errorf("malformed JSON string before byte %d: %w", s.offset(), err))
	}
	s.raw = append(s.raw[:0], value...)
	return nil
}
