// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// document is one document of a file.
type document struct {
	// text is its bytes, offset where they begin in the file, line the number of the
	// file's lines before them.
	text         []byte
	offset, line int
	// begins is the offset of the marker before the document; offset, without one.
	begins int
	root   *yaml.Node
	// starts are the offsets of the lines of text.
	starts []int
	// err is why the document cannot be edited.
	err error
}

// marker begins a document where it begins a line.
const marker = "---"

// byteOrderMark is skipped by all readers.
var byteOrderMark = []byte("\ufeff")

// parse returns the documents of a file that hold anything. What readers would
// disagree about is a *RefusedError.
func parse(file []byte) ([]*document, error) {
	var documents []*document
	for _, d := range split(file) {
		var node yaml.Node
		if err := yaml.Unmarshal(d.text, &node); err != nil {
			return nil, unreadable(d)
		}
		if len(node.Content) == 0 || isNull(node.Content[0]) {
			continue
		}
		d.root = node.Content[0]
		if err := d.check(d.root); err != nil {
			return nil, err
		}
		documents = append(documents, d)
	}
	return documents, nil
}

// split cuts a file at its document markers. YAML allows "---" at the start of a
// line nowhere else.
func split(file []byte) []*document {
	var documents []*document
	start, line := 0, 0
	if bytes.HasPrefix(file, byteOrderMark) {
		start = len(byteOrderMark)
	}
	current := &document{begins: start, offset: start}
	finish := func(end int) {
		current.text = file[current.offset:end]
		current.starts = []int{0}
		for i, c := range current.text {
			if c == '\n' {
				current.starts = append(current.starts, i+1)
			}
		}
		documents = append(documents, current)
	}
	for at := start; at < len(file); line++ {
		rest := file[at:]
		if bytes.HasPrefix(rest, []byte(marker)) && (len(rest) == len(marker) || bytes.IndexByte([]byte(" \t\r\n"), rest[len(marker)]) >= 0) {
			finish(at)
			// Blanks before a comment on the marker's line are the marker's: a parser
			// that sees a tab there for the first byte refuses it.
			blanks := len(rest) - len(marker) - len(bytes.TrimLeft(rest[len(marker):], " \t"))
			current = &document{begins: at, offset: at + len(marker) + blanks, line: line}
		}
		next := bytes.IndexByte(rest, '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	finish(len(file))
	return documents
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// at returns the number of the node's line in the file.
func (d *document) at(n *yaml.Node) int { return d.line + n.Line }

// check refuses what one reader takes for one thing and the next for another.
func (d *document) check(n *yaml.Node) *RefusedError {
	if n.Kind == yaml.MappingNode {
		lines := map[string]int{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				if key.Kind == yaml.MappingNode && key.Style&yaml.FlowStyle != 0 && n.Style&yaml.FlowStyle != 0 {
					return &RefusedError{Reason: Template, Line: d.at(key), Detail: "the file is a template"}
				}
				return &RefusedError{Reason: Unreadable, Line: d.at(key), Detail: "a key that is not a scalar"}
			}
			if line, twice := lines[key.Value]; twice {
				return &RefusedError{Reason: DuplicateKey, Line: d.at(key),
					Detail: fmt.Sprintf("the key %q is already on line %d", key.Value, line)}
			}
			lines[key.Value] = d.at(key)
		}
	}
	for _, c := range n.Content {
		if err := d.check(c); err != nil {
			return err
		}
	}
	return nil
}

// unreadable says why the parser gives up on a document.
func unreadable(d *document) *RefusedError {
	if line := lineOf(d.text, "{{"); line > 0 {
		return &RefusedError{Reason: Template, Line: d.line + line, Detail: "the file is a template"}
	}
	// The parser's message counts the lines of what it is given.
	padded := append(bytes.Repeat([]byte("\n"), d.line), d.text...)
	detail := "the document cannot be read"
	if err := yaml.Unmarshal(padded, &yaml.Node{}); err != nil {
		detail = err.Error()
	}
	return &RefusedError{Reason: Unreadable, Line: d.line + 1, Detail: detail}
}

// encrypted refuses a document that a tool encrypted: its values are not the
// object's, and a checksum covers them all.
func encrypted(d *document) *RefusedError {
	sops := field(d.root, "sops")
	if sops == nil || field(sops, "mac") == nil {
		return nil
	}
	return &RefusedError{Reason: Encrypted, Line: d.at(sops), Detail: "the document is encrypted with SOPS"}
}

// lineOf returns the number of the first line that contains the text, or 0.
func lineOf(file []byte, text string) int {
	before, _, ok := bytes.Cut(file, []byte(text))
	if !ok {
		return 0
	}
	return 1 + bytes.Count(before, []byte("\n"))
}
