// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

var jsonTexts = []string{
	`{}`, `[]`, `null`, `true`, `false`, `0`, `-0`, `1.5e+10`, `-12.0E-3`, `""`, `"a\u00e9\n\"\\\/\b\f\r\t"`, `"é"`,
	`{"a":{"b":[1,2,{"c":null}]},"d":"e"}`, " \t\r\n[ 1 , 2 ] \n", `[[[[]]],{}]`, `{"":""}`, `{"a":1,"a":2}`,
	``, ` `, `{`, `}`, `[`, `]`, `{]`, `[}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `[,1]`, `[1 2]`, `{a:1}`, `{"a":1 "b":2}`, `,`,
	`01`, `1.`, `.5`, `+1`, `1e`, `1e+`, `-`, `--1`, `tru`, `truex`, `nul`, `TRUE`, `"`, `"a`, `"\x"`, `"\u12g4"`, `"\u12`, "\"\n\"", "\"\x00\"", "\x00",
	`{} {}`, `1 1`, `[]x`, `"a"b`, "\ufeff{}", `'a'`, `/**/{}`, `[NaN]`,
}

// TestScannerAcceptsWhatEncodingJSONAccepts skips each text, whole and byte by byte.
func TestScannerAcceptsWhatEncodingJSONAccepts(t *testing.T) {
	texts := append(jsonTexts, strings.Repeat("[", maxDepth)+strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1)+strings.Repeat("]", maxDepth+1),
		strings.Repeat(`{"a":`, maxDepth)+"1"+strings.Repeat("}", maxDepth), strings.Repeat(`{"a":`, maxDepth+1)+"1"+strings.Repeat("}", maxDepth+1))
	for _, text := range texts {
		want := json.Valid([]byte(text))
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytewise": iotest.OneByteReader(strings.NewReader(text))} {
			var s scanner
			s.reset(r)
			err := s.skip()
			if err == nil {
				err = s.ended()
			}
			if (err == nil) != want {
				t.Errorf("%s %.40q: got %v, encoding/json says valid: %v", name, text, err, want)
			}
		}
	}
}

func TestScannerText(t *testing.T) {
	for _, text := range []string{`""`, `"plain"`, `"\u00e9\n\"\\\/"`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\xff\"", `"` + strings.Repeat("long", scanBuffer) + `"`} {
		var want, got string
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		var s scanner
		s.reset(iotest.HalfReader(strings.NewReader(text)))
		if err := s.text(&got); err != nil || got != want {
			t.Errorf("%.40q: got %.40q, %v", text, got, err)
		}
	}
	var s scanner
	s.reset(strings.NewReader(`"` + strings.Repeat("x", maxText+1) + `"`))
	var got string
	var tooLarge *TooLargeError
	if err := s.text(&got); !errors.As(err, &tooLarge) {
		t.Errorf("a string over the bound: got %v", err)
	}
}

// TestScannerReportsReadErrors: a cut connection is no end of the text.
func TestScannerReportsReadErrors(t *testing.T) {
	var s scanner
	s.reset(io.MultiReader(strings.NewReader(`[1, 2`), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if err := s.skip(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

// FuzzEventList: what is accepted is valid JSON, whatever is read of it makes sound
// facts, and cutting a body short is always noticed.
func FuzzEventList(f *testing.F) {
	files, err := filepath.Glob("testdata/events/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		f.Add(eventList(readEvent(f, strings.TrimSuffix(filepath.Base(file), ".json"))))
	}
	for _, text := range jsonTexts {
		f.Add([]byte(text))
		f.Add(eventList([]byte(text)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		read := func(body []byte) (facts []Fact, err error) {
			var s scanner
			s.reset(bytes.NewReader(body))
			err = s.eventList(1<<20, func(e *event) error {
				facts, _ = e.facts(facts)
				return nil
			})
			return facts, err
		}
		facts, err := read(body)
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("accepted %q, which is no JSON", body)
		}
		for _, fact := range facts {
			if fact.Username == "" || fact.Resource == "" || fact.UID == "" && !fact.isDeletion() || fact.UID != "" && !fact.isDeletion() && fact.ResourceVersion == "" {
				t.Fatalf("unsound fact %+v", fact)
			}
		}
		if body = bytes.TrimRight(body, " \t\r\n"); len(body) > 0 {
			if _, err := read(body[:len(body)-1]); err == nil {
				t.Fatalf("accepted %q without its end", body)
			}
		}
	})
}
