// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	// maxDiff bounds the bytes of one diff.
	maxDiff = 1 << 20
	// maxLineDiff is the size from which a file is not compared line by line.
	maxLineDiff = 4 << 20
	// contextLines are shown around each change.
	contextLines = 3
	// binaryProbe is how far into a file git looks for a NUL byte.
	binaryProbe = 8000
	// maxHeading is how much of a line git repeats behind the numbers of a hunk.
	maxHeading = 80
)

// side is a file before or after a change. The zero value is no file.
type side struct {
	mode string // as git prints it
	hash string
	data []byte
}

func (s side) exists() bool { return s.mode != "" }

// binary says whether the file is not compared line by line.
func (s side) binary() bool {
	return len(s.data) > maxLineDiff || bytes.IndexByte(s.data[:min(len(s.data), binaryProbe)], 0) >= 0
}

// patch is a unified diff in the making, of at most maxDiff bytes and a last line
// that says so.
type patch struct {
	text      []byte
	truncated bool
}

// file adds the change of one file as git diff --full-index --no-renames has it.
func (p *patch) file(path string, from, to side) {
	if from.exists() && to.exists() && from.mode[:2] != to.mode[:2] {
		// What becomes a symbolic link, or stops being one, is another thing.
		p.file(path, from, side{})
		p.file(path, side{}, to)
		return
	}
	if p.truncated {
		return
	}
	a, b := quotePath("a/"+path), quotePath("b/"+path)
	p.line("diff --git ", a, " ", b)
	switch {
	case !from.exists():
		p.line("new file mode ", to.mode)
	case !to.exists():
		p.line("deleted file mode ", from.mode)
	case from.mode != to.mode:
		p.line("old mode ", from.mode)
		p.line("new mode ", to.mode)
	}
	if from.hash != to.hash {
		mode := ""
		if from.mode == to.mode {
			mode = " " + to.mode
		}
		p.line("index ", orZeros(from.hash), "..", orZeros(to.hash), mode)
		p.content(a, b, from, to)
	}
	p.cut()
}

func orZeros(hash string) string {
	if hash == "" {
		return strings.Repeat("0", 40)
	}
	return hash
}

func (p *patch) line(parts ...string) {
	for _, s := range parts {
		p.text = append(p.text, s...)
	}
	p.text = append(p.text, '\n')
}

func (p *patch) content(a, b string, from, to side) {
	if !from.exists() {
		a = "/dev/null"
	}
	if !to.exists() {
		b = "/dev/null"
	}
	if from.binary() || to.binary() {
		p.line("Binary files ", a, " and ", b, " differ")
		return
	}
	d := diffLines(string(from.data), string(to.data))
	named := false
	above, searched := "", 0
	for h := range d.hunks() {
		if !named {
			named = true
			p.line("--- ", a, tab(a))
			p.line("+++ ", b, tab(b))
		}
		for ; searched < h.from; searched++ {
			if s, ok := heading(d.from[searched]); ok {
				above = " " + s
			}
		}
		p.hunk(d, h, above)
		if len(p.text) > maxDiff {
			return
		}
	}
}

// tab ends a name with a space in it, for programs that expect a date there.
func tab(name string) string {
	if strings.Contains(name, " ") {
		return "\t"
	}
	return ""
}

// cut ends a diff that became too long after its last whole line.
func (p *patch) cut() {
	if len(p.text) <= maxDiff {
		return
	}
	p.text = p.text[:bytes.LastIndexByte(p.text[:maxDiff], '\n')+1]
	p.leaveOut(fmt.Sprintf("the diff is longer than %d bytes", maxDiff))
}

// leaveOut ends the diff with a line that says why it does not go on. It starts as
// git's only other remark within a diff does.
func (p *patch) leaveOut(why string) {
	if !p.truncated {
		p.truncated = true
		p.line(`\ The rest is left out: `, why)
	}
}

// hunk is a range of lines of both texts that is shown in one piece.
type hunk struct{ from, to, fromEnd, toEnd int }

// hunks yields the changes with the lines around them, joined where they meet.
func (d *lineDiff) hunks() func(yield func(hunk) bool) {
	return func(yield func(hunk) bool) {
		i, j := 0, 0
		// next moves i and j to the end of the change that starts at or after them.
		next := func() (change hunk, ok bool) {
			for i < len(d.from) && j < len(d.to) && !d.removed[i] && !d.added[j] {
				i, j = i+1, j+1
			}
			change = hunk{from: i, to: j}
			for i < len(d.from) && d.removed[i] {
				i++
			}
			for j < len(d.to) && d.added[j] {
				j++
			}
			change.fromEnd, change.toEnd = i, j
			return change, change.fromEnd > change.from || change.toEnd > change.to
		}
		change, ok := next()
		for ok {
			h := change
			for {
				if change, ok = next(); !ok || change.from-h.fromEnd > 2*contextLines {
					break
				}
				h.fromEnd, h.toEnd = change.fromEnd, change.toEnd
			}
			before := min(contextLines, h.from)
			after := min(contextLines, len(d.from)-h.fromEnd)
			if !yield(hunk{h.from - before, h.to - before, h.fromEnd + after, h.toEnd + after}) {
				return
			}
		}
	}
}

func (p *patch) hunk(d lineDiff, h hunk, above string) {
	p.text = append(p.text, "@@ -"...)
	p.extent(h.from, h.fromEnd)
	p.text = append(p.text, " +"...)
	p.extent(h.to, h.toEnd)
	p.line(" @@", above)
	for i, j := h.from, h.to; i < h.fromEnd || j < h.toEnd; {
		switch {
		case i < h.fromEnd && d.removed[i]:
			p.row('-', d.from[i])
			i++
		case j < h.toEnd && d.added[j]:
			p.row('+', d.to[j])
			j++
		default:
			p.row(' ', d.from[i])
			i, j = i+1, j+1
		}
		if len(p.text) > maxDiff {
			return
		}
	}
}

func (p *patch) extent(start, end int) {
	n := end - start
	if n > 0 {
		start++ // lines count from 1; without any, it is the one before
	}
	p.text = fmt.Append(p.text, start)
	if n != 1 {
		p.text = fmt.Appendf(p.text, ",%d", n)
	}
}

func (p *patch) row(sign byte, line string) {
	p.text = append(append(p.text, sign), line...)
	if !strings.HasSuffix(line, "\n") {
		p.text = append(p.text, "\n\\ No newline at end of file\n"...)
	}
}

// heading is what of a line is repeated behind the numbers of the hunks below it.
func heading(line string) (string, bool) {
	c := line[0]
	if c != '_' && c != '$' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
		return "", false
	}
	return strings.TrimRight(line[:min(len(line), maxHeading)], " \t\n\r"), true
}

// quotePath writes a path as git does: in quotes, with escapes, when it has
// characters that could be misread.
func quotePath(path string) string {
	var b strings.Builder
	plain := true
	b.WriteByte('"')
	for _, c := range []byte(path) {
		escaped := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c)
		switch {
		case escaped >= 0:
			b.WriteByte('\\')
			b.WriteByte(`abtnvfr"\`[escaped])
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
			continue
		}
		plain = false
	}
	if plain {
		return path
	}
	b.WriteByte('"')
	return b.String()
}
