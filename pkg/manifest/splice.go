// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// splice is one replaced range of a document's text.
type splice struct {
	start, end int
	text       string
}

// splicer collects the splices that make a document say something else.
type splicer struct {
	*document
	// json: the document is JSON, and stays so.
	json    bool
	splices []splice
}

// splice returns the file with only the changed values' bytes replaced, or says why
// that cannot be. The result is read back before it is believed.
func (p place) splice(file []byte, want map[string]any) ([]byte, error) {
	s := &splicer{document: p.document, json: json.Valid(p.document.text)}
	s.value(p.node, p.value, want, s.flow(p.node))
	if s.err != nil {
		return nil, s.err
	}
	text, ok := s.apply()
	if !ok {
		return nil, s.unproven(p)
	}
	if again, err := read(text); err != nil || !p.says(again, want) || s.json && !json.Valid(text) {
		return nil, s.unproven(p)
	}
	end := s.offset + len(s.text)
	return slices.Concat(file[:s.offset], text, file[end:]), nil
}

func (s *splicer) unproven(p place) error {
	return &RefusedError{Reason: NotEditable, Line: s.at(p.node), Detail: "the change cannot be made without touching other lines"}
}

// says reports whether a document that was read back has the object, and all else
// unchanged.
func (p place) says(document, want map[string]any) bool {
	if p.item < 0 {
		return reflect.DeepEqual(document, want)
	}
	before, err := read(p.document.text)
	if err != nil {
		return false
	}
	items, ok := before["items"].([]any)
	if !ok || p.item >= len(items) {
		return false
	}
	items[p.item] = want
	return reflect.DeepEqual(document, before)
}

// apply makes the splices. It returns false when they overlap or change what is
// not theirs.
func (s *splicer) apply() ([]byte, bool) {
	slices.SortStableFunc(s.splices, func(a, b splice) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	lineEnd := "\n"
	if bytes.Contains(s.text, []byte("\r\n")) {
		lineEnd = "\r\n"
	}
	var out bytes.Buffer
	at := 0
	for _, p := range s.splices {
		if p.start < at || p.end < p.start || p.end > len(s.text) {
			return nil, false
		}
		out.Write(s.text[at:p.start])
		out.WriteString(strings.ReplaceAll(p.text, "\n", lineEnd))
		at = p.end
	}
	out.Write(s.text[at:])
	return out.Bytes(), true
}

func (s *splicer) replace(start, end int, text string) {
	s.splices = append(s.splices, splice{start, end, text})
}

func (s *splicer) flow(n *yaml.Node) bool {
	return (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && n.Style&yaml.FlowStyle != 0
}

// value makes a node say want instead of have. flow: it is within brackets, or has
// them.
func (s *splicer) value(n *yaml.Node, have, want any, flow bool) {
	if s.err != nil || reflect.DeepEqual(have, want) {
		return
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		// The other users of the anchor would change too.
		s.fail(n, "the value is shared by an anchor")
		return
	}
	switch h := have.(type) {
	case map[string]any:
		w, ok := want.(map[string]any)
		if ok && n.Kind == yaml.MappingNode && len(h) > 0 && len(w) > 0 {
			s.mapping(n, h, w, flow || s.flow(n))
			return
		}
	case []any:
		w, ok := want.([]any)
		if ok && n.Kind == yaml.SequenceNode && len(h) > 0 && len(w) > 0 && len(h) == len(n.Content) {
			s.sequence(n, h, w, flow || s.flow(n))
			return
		}
	default:
		if text, ok := s.scalar(n, want, flow); ok && n.Kind == yaml.ScalarNode {
			start := s.begin(n)
			end := s.end(n)
			if end > start && s.text[end-1] == '\n' && !strings.HasSuffix(text, "\n") {
				text += "\n" // a block scalar ends with its line
			}
			s.replace(start, end, text)
			return
		}
	}
	s.fail(n, "the value changes its shape")
}

// scalar writes a value that is one token, in the style of the node it replaces.
func (s *splicer) scalar(n *yaml.Node, want any, flow bool) (string, bool) {
	text, isString := want.(string)
	switch want.(type) {
	case map[string]any, []any:
		return s.empty(want)
	}
	if s.json {
		return s.flowText(want), true
	}
	block := n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if isString && (block || strings.Contains(text, "\n") && n.Style == 0) && !flow {
		if header, ok := blockHeader(text); ok {
			indent := s.ownerIndent(s.begin(n)) + 2
			e := encoder{}
			e.block(header, text, indent)
			if block {
				return e.out.String(), true
			}
			return strings.TrimSuffix(e.out.String(), "\n"), true
		}
	}
	if isString && n.Style&yaml.DoubleQuotedStyle != 0 {
		return quote(text), true
	}
	if isString && n.Style&yaml.SingleQuotedStyle != 0 && !strings.ContainsFunc(text, func(r rune) bool { return r != ' ' && !printable(r) }) {
		return "'" + strings.ReplaceAll(text, "'", "''") + "'", true
	}
	if isString && flow && strings.ContainsAny(text, ",[]{}") {
		return quote(text), true
	}
	token, err := scalar(want, "")
	return token, err == nil
}

func (s *splicer) empty(v any) (string, bool) {
	switch v := v.(type) {
	case map[string]any:
		return "{}", len(v) == 0
	case []any:
		return "[]", len(v) == 0
	}
	return "", false
}

// entryText writes a map or list of one in block style, the cursor being at column
// indent already.
func entryText(v any, indent int) (string, error) {
	e := encoder{}
	var err error
	switch v := v.(type) {
	case map[string]any:
		err = e.mapping(v, indent, "")
	case []any:
		err = e.sequence(v, indent, "")
	}
	return e.out.String(), err
}

// flowText writes a value within brackets, on one line.
func (s *splicer) flowText(v any) string {
	var b strings.Builder
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s: %s", s.flowText(key), s.flowText(v[key]))
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(s.flowText(item))
		}
		b.WriteByte(']')
	case string:
		if s.json {
			return quoteJSON(v)
		}
		if plain(v) && !strings.ContainsAny(v, ",[]{}") {
			return v
		}
		return quote(v)
	default:
		token, err := scalar(v, "")
		if err != nil {
			return "null" // read back, and refused
		}
		return token
	}
	return b.String()
}
