// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mapping edits, removes and adds entries. Both sides have some.
func (s *splicer) mapping(n *yaml.Node, have, want map[string]any, flow bool) {
	own := map[string]bool{}
	var removed []int
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Value == "<<" {
			continue
		}
		name, ok := s.keyOf(key, have)
		if !ok {
			s.fail(key, "the key is read as something else")
			return
		}
		own[name] = true
		if w, ok := want[name]; ok {
			s.entry(n, i, have[name], w, flow)
			continue
		}
		removed = append(removed, i)
	}
	if !s.remove(n, removed, 2, want, flow) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if own[name] || reflect.DeepEqual(have[name], want[name]) && has(have, name) {
			continue // merged entries that stay, stay merged
		}
		s.add(n, len(n.Content)-2, map[string]any{name: want[name]}, flow)
	}
}

// remove takes out the entries or elements that begin at these indices of Content.
// It returns false when it wrote the whole collection anew instead.
func (s *splicer) remove(n *yaml.Node, removed []int, width int, want any, flow bool) bool {
	if !flow {
		for _, i := range removed {
			if width == 2 {
				s.removeEntry(n, i)
			} else {
				s.removeElement(n, i)
			}
		}
		return true
	}
	if len(removed)*width == len(n.Content) {
		s.replace(s.begin(n), s.end(n), s.flowText(want))
		return false
	}
	// The last ones go with the comma before them, the others with the one behind.
	last := len(n.Content)
	for slices.Contains(removed, last-width) {
		last -= width
	}
	for _, i := range removed {
		if i < last {
			s.replace(s.begin(n.Content[i]), s.begin(n.Content[i+width]), "")
		}
	}
	if last < len(n.Content) {
		s.replace(s.end(n.Content[last-1]), s.end(n.Content[len(n.Content)-1]), "")
	}
	return true
}

func has(m map[string]any, key string) bool { _, ok := m[key]; return ok }

// keyOf returns the name by which kubectl's reader knows a key.
func (s *splicer) keyOf(key *yaml.Node, have map[string]any) (string, bool) {
	if has(have, key.Value) {
		return key.Value, true
	}
	if read, err := read([]byte(string(s.text[s.begin(key):s.end(key)]) + ": 0\n")); err == nil && len(read) == 1 {
		for name := range read {
			return name, has(have, name)
		}
	}
	return "", false
}

// entry makes one entry's value say something else; a value that changes its shape
// is written anew.
func (s *splicer) entry(n *yaml.Node, i int, have, want any, flow bool) {
	if reflect.DeepEqual(have, want) {
		return
	}
	key, value := n.Content[i], n.Content[i+1]
	if sameShape(have, want) || value.Kind == yaml.AliasNode || value.Anchor != "" {
		s.value(value, have, want, flow)
		return
	}
	if flow {
		s.replace(s.begin(value), s.end(value), s.flowText(want))
		return
	}
	// Behind the key's colon up to the end of the old value.
	colon := s.end(key)
	colon += bytes.IndexByte(s.text[colon:], ':') + 1
	end := s.end(value)
	name := key.Value
	text, err := entryText(map[string]any{name: want}, key.Column-1)
	if err != nil || s.err != nil {
		s.fail(key, "the new value cannot be written")
		return
	}
	token, _ := scalar(name, "")
	text = strings.TrimPrefix(text, token+":")
	if end == 0 || s.text[end-1] != '\n' {
		text = strings.TrimSuffix(text, "\n")
	}
	s.replace(colon, max(end, colon), text)
}

// sameShape reports whether a value can be edited within its old form.
func sameShape(have, want any) bool {
	switch h := have.(type) {
	case map[string]any:
		w, ok := want.(map[string]any)
		return ok && len(h) > 0 && len(w) > 0
	case []any:
		w, ok := want.([]any)
		return ok && len(h) > 0 && len(w) > 0
	case nil:
		return false
	}
	switch want.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// removeEntry takes out the entry whose key is Content[i].
func (s *splicer) removeEntry(n *yaml.Node, i int) {
	key, value := n.Content[i], n.Content[i+1]
	start := s.begin(key)
	if s.alone(start) {
		s.removeLines(start, s.end(value), key.Column-1)
		return
	}
	// The first entry of an element of a list shares its line with the dash.
	if i+2 < len(n.Content) {
		s.replace(start, s.begin(n.Content[i+2]), "")
		return
	}
	s.fail(key, "the entry shares its line")
}

// alone reports whether only blanks are before an offset on its line.
func (s *splicer) alone(at int) bool {
	return len(bytes.Trim(s.text[s.lineStart(at):at], " ")) == 0
}

// removeLines removes whole lines with the comment that stands directly above
// them, and one blank line where that would leave it without a neighbour.
func (s *splicer) removeLines(start, end, column int) {
	start, end = s.lineStart(start), s.nextLine(end)
	for start > 0 {
		above := s.lineStart(start - 1)
		line := bytes.TrimRight(s.text[above:start], "\r\n")
		if len(line) <= column || line[column] != '#' || len(bytes.TrimLeft(line[:column], " ")) > 0 {
			break
		}
		start = above
	}
	blank := func(at int) bool { return len(bytes.TrimSpace(s.text[at:s.lineEnd(at)])) == 0 }
	opens := start == 0 || blank(s.lineStart(start-1)) || bytes.HasSuffix(bytes.TrimSpace(s.text[s.lineStart(start-1):start]), []byte(":"))
	for opens && end < len(s.text) && blank(end) {
		end = s.nextLine(end + 1)
	}
	s.replace(start, end, "")
}

// add writes an entry (a map of one) or an element (a list of one) behind the node
// Content[i] and, in a mapping, its value; i < 0 is before the first.
func (s *splicer) add(n *yaml.Node, i int, addition any, flow bool) {
	width := 1
	if n.Kind == yaml.MappingNode {
		width = 2
	}
	if flow {
		text := s.flowText(addition)
		text = text[1 : len(text)-1]
		if i < 0 {
			s.replace(s.begin(n.Content[0]), s.begin(n.Content[0]), text+", ")
			return
		}
		at := s.end(n.Content[i+width-1])
		s.replace(at, at, ", "+text)
		return
	}
	text, err := entryText(addition, n.Column-1)
	if err != nil {
		s.fail(n, "the new value cannot be written")
		return
	}
	text = strings.Repeat(" ", n.Column-1) + text
	if i < 0 {
		first := s.begin(n)
		if !s.alone(first) {
			s.fail(n, "the list shares its line")
			return
		}
		s.replace(s.lineStart(first), s.lineStart(first), text)
		return
	}
	at := s.nextLine(s.end(n.Content[i+width-1]))
	if at > 0 && s.text[at-1] != '\n' {
		text = "\n" + strings.TrimSuffix(text, "\n")
	}
	s.replace(at, at, text)
}

// sequence edits, removes and adds elements. Both sides have some.
func (s *splicer) sequence(n *yaml.Node, have, want []any, flow bool) {
	pairs := align(have, want)
	var removed []int
	for i, j := range pairs {
		if j < 0 {
			removed = append(removed, i)
		}
	}
	if !s.remove(n, removed, 1, want, flow) {
		return
	}
	last := -1
	next := 0
	flush := func(to int) {
		for ; next < to; next++ {
			s.add(n, last, []any{want[next]}, flow)
		}
	}
	for i := range have {
		j := pairs[i]
		if j < 0 {
			last = i
			continue
		}
		flush(j)
		s.value(n.Content[i], have[i], want[j], flow)
		last, next = i, j+1
	}
	flush(len(want))
}

// removeElement takes out an element of a block list.
func (s *splicer) removeElement(n *yaml.Node, i int) {
	item := n.Content[i]
	start := s.lineStart(s.begin(item)) + n.Column - 1
	if start >= len(s.text) || s.text[start] != '-' || !s.alone(start) {
		s.fail(item, "the element shares its line")
		return
	}
	s.removeLines(start, s.end(item), n.Column-1)
}

// renamed reports whether two elements differ in their names only.
func renamed(a, b any) bool {
	m, _ := a.(map[string]any)
	n, _ := b.(map[string]any)
	key, other := nameKeyOf(m), nameKeyOf(n)
	if key == "" || key != other || len(m) < 2 || len(m) != len(n) {
		return false
	}
	for k, v := range m {
		if k != key && !(has(n, k) && reflect.DeepEqual(v, n[k])) {
			return false
		}
	}
	return true
}

// align pairs the elements of two lists in order: equal ones first, then those
// that are named the same, then those that were renamed, then nameless ones that
// stand in each other's place. The result holds, for each of have, its index in
// want or -1.
func align(have, want []any) []int {
	score := func(a, b any) int {
		switch {
		case reflect.DeepEqual(a, b):
			return 4
		case named(a) != "" && named(a) == named(b):
			return 3
		case renamed(a, b):
			return 2
		case named(a) == "" && named(b) == "" && sameShape(a, b):
			return 1
		}
		return 0
	}
	best := make([][]int, len(have)+1)
	for i := range best {
		best[i] = make([]int, len(want)+1)
	}
	for i := range slices.Backward(have) {
		for j := len(want) - 1; j >= 0; j-- {
			best[i][j] = max(best[i+1][j], best[i][j+1])
			if p := score(have[i], want[j]); p > 0 {
				best[i][j] = max(best[i][j], p+best[i+1][j+1])
			}
		}
	}
	pairs := make([]int, len(have))
	j := 0
	for i := range have {
		pairs[i] = -1
		for j < len(want) && best[i][j] == best[i][j+1] && best[i][j] != best[i+1][j] {
			j++
		}
		if j == len(want) {
			continue
		}
		if p := score(have[i], want[j]); p > 0 && best[i][j] == p+best[i+1][j+1] {
			pairs[i] = j
			j++
		}
	}
	return pairs
}
