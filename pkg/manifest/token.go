// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// The parser says where a node begins, not where it ends; this file finds out. All
// offsets are into document.text. What is not certain fails the document; offsets
// mean nothing then.

// fail keeps the first reason why the document cannot be edited, and returns 0.
func (d *document) fail(n *yaml.Node, detail string) int {
	if d.err == nil {
		d.err = &RefusedError{Reason: NotEditable, Line: d.at(n), Detail: detail}
	}
	return 0
}

// begin returns the offset of the node's first byte.
func (d *document) begin(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(d.starts) {
		return d.fail(n, "its position is not clear")
	}
	at := d.starts[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(d.text[at:])
		at += size
	}
	return min(at, len(d.text))
}

// end returns the offset after the node's last byte, without trailing blanks and
// comments; after the line end for a block scalar.
func (d *document) end(n *yaml.Node) int {
	switch n.Kind {
	case yaml.ScalarNode:
		return d.scalarEnd(n)
	case yaml.AliasNode:
		return d.begin(n) + 1 + len(n.Value)
	case yaml.MappingNode, yaml.SequenceNode:
		if n.Style&yaml.FlowStyle == 0 {
			return d.end(n.Content[len(n.Content)-1])
		}
		at := d.begin(n)
		at += bytes.IndexAny(d.text[at:], "[{") + 1
		if len(n.Content) > 0 {
			at = d.end(n.Content[len(n.Content)-1])
		}
		at = d.skip(at)
		if at < len(d.text) && d.text[at] == ',' {
			at = d.skip(at + 1)
		}
		if at < len(d.text) && (d.text[at] == ']' || d.text[at] == '}') {
			return at + 1
		}
	case yaml.DocumentNode:
		// Ends where its text does, which nobody asks of it.
	}
	return d.fail(n, "its end is not clear")
}

// skip returns the offset of the next byte that is no blank, line end or comment.
func (d *document) skip(at int) int {
	for at < len(d.text) {
		switch d.text[at] {
		case ' ', '\t', '\r', '\n':
			at++
		case '#':
			at = d.lineEnd(at)
		default:
			return at
		}
	}
	return at
}

// lineEnd returns the offset of the line end at or after an offset.
func (d *document) lineEnd(at int) int {
	if i := bytes.IndexByte(d.text[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(d.text)
}

// lineStart returns the offset of the first byte of the line of an offset.
func (d *document) lineStart(at int) int { return bytes.LastIndexByte(d.text[:at], '\n') + 1 }

// nextLine returns where the line after an offset starts; the offset itself when it
// is a line's first.
func (d *document) nextLine(at int) int {
	if at == 0 || d.text[at-1] == '\n' {
		return at
	}
	return min(d.lineEnd(at)+1, len(d.text))
}

func (d *document) scalarEnd(n *yaml.Node) int {
	if n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		return d.fail(n, "it has an anchor or a tag")
	}
	at := d.begin(n)
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		for i := at + 1; i < len(d.text); i++ {
			switch d.text[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
	case n.Style&yaml.SingleQuotedStyle != 0:
		for i := at + 1; i < len(d.text); i++ {
			if d.text[i] != '\'' {
				continue
			}
			if i+1 == len(d.text) || d.text[i+1] != '\'' {
				return i + 1
			}
			i++
		}
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return d.blockEnd(at)
	default:
		if end, ok := d.plainEnd(at, n.Value); ok {
			return end
		}
	}
	return d.fail(n, "its end is not clear")
}

// plainEnd matches a plain scalar with the value that was read, in which line ends
// are folded.
func (d *document) plainEnd(at int, value string) (int, bool) {
	for len(value) > 0 {
		if at >= len(d.text) {
			return 0, false
		}
		if value[0] == d.text[at] {
			value, at = value[1:], at+1
			continue
		}
		breaks := 0
		for at < len(d.text) && strings.IndexByte(" \t\r\n", d.text[at]) >= 0 {
			if d.text[at] == '\n' {
				breaks++
			}
			at++
		}
		fold := strings.Repeat("\n", max(breaks-1, 0))
		if breaks == 1 {
			fold = " "
		}
		if breaks == 0 || !strings.HasPrefix(value, fold) {
			return 0, false
		}
		value = value[len(fold):]
	}
	return at, true
}

// blockEnd returns where a block scalar's last line ends.
func (d *document) blockEnd(at int) int {
	owner := d.ownerIndent(at)
	end := d.nextLine(at + 1)
	indent := 0
	for _, c := range d.text[at:min(at+3, d.lineEnd(at))] {
		if c >= '1' && c <= '9' {
			indent = owner + int(c-'0')
		}
	}
	for line := end; line < len(d.text); line = d.lineEnd(line) + 1 {
		text := bytes.TrimRight(d.text[line:d.lineEnd(line)], "\r")
		content := len(text) - len(bytes.TrimLeft(text, " "))
		if content == len(text) { // blank
			continue
		}
		if indent == 0 {
			indent = content
		}
		if content < indent || content <= owner {
			break
		}
		end = min(d.lineEnd(line)+1, len(d.text))
	}
	return end
}

// ownerIndent returns the column of the key, or the dash, that a block scalar
// belongs to.
func (d *document) ownerIndent(at int) int {
	line := d.text[d.lineStart(at):at]
	for i, c := range line {
		nested := c == '-' && i+1 < len(line) && line[i+1] == ' ' && len(bytes.TrimSpace(line[i+1:])) > 0
		if c != ' ' && !nested {
			return i
		}
	}
	return len(line)
}
