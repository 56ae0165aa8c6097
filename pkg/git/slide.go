// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import "cmp"

// gaps turns marks of changed lines into the number of them before each line that
// stays, and behind the last one. Two texts have as many lines that stay, so their
// gaps correspond.
func gaps(changed []bool) []int {
	g := []int{0}
	for _, c := range changed {
		if c {
			g[len(g)-1]++
		} else {
			g = append(g, 0)
		}
	}
	return g
}

// mark is the reverse of gaps.
func mark(changed []bool, gaps []int) {
	clear(changed)
	at := 0
	for _, n := range gaps {
		for range n {
			changed[at] = true
			at++
		}
		at++
	}
}

// group is a run of changed lines: lines[start:start+gaps[gap]]. It can be moved
// over a line that stays when that line equals the one at its far end, and becomes
// one with the group that it meets there.
type group struct {
	lines      []int32
	gaps       []int
	gap, start int
}

func (g *group) size() int { return g.gaps[g.gap] }
func (g *group) end() int  { return g.start + g.size() }

func (g *group) up() bool {
	if g.gap == 0 || g.lines[g.start-1] != g.lines[g.end()-1] {
		return false
	}
	n := g.size()
	g.gaps[g.gap] = 0
	g.gap--
	g.start -= 1 + g.size()
	g.gaps[g.gap] += n
	return true
}

func (g *group) down() bool {
	if g.gap == len(g.gaps)-1 || g.lines[g.start] != g.lines[g.end()] {
		return false
	}
	n := g.size()
	g.gaps[g.gap] = 0
	g.gap++
	g.start++
	g.gaps[g.gap] += n
	return true
}

// slide moves each group to where a reader expects it: beside a change of the
// other text if there is one in reach, so that it shows as a replacement, and else
// where the indentation suggests that something begins and ends.
func slide(ids []int32, lines []string, gaps, other []int) {
	g := &group{lines: ids, gaps: gaps}
	for {
		if g.size() > 0 {
			g.settle(lines, other)
		}
		if g.gap == len(gaps)-1 {
			return
		}
		g.start = g.end() + 1
		g.gap++
	}
}

func (g *group) settle(lines []string, other []int) {
	highest, beside := 0, -1
	for size := 0; size != g.size(); {
		size, beside = g.size(), -1
		for g.up() {
		}
		highest = g.end()
		for moved := true; moved; moved = g.down() {
			if other[g.gap] > 0 {
				beside = g.gap
			}
		}
	}
	switch {
	case g.end() == highest:
	case beside >= 0:
		for g.gap > beside && g.up() {
		}
	default:
		// Further up than its own size the group would only show the same again.
		size := g.size()
		first := max(highest, g.end()-size-1, g.end()-maxSlide)
		best, end := placement{}, -1
		for e := first; e <= g.end(); e++ {
			p := place(lines, e).plus(place(lines, e-size))
			if end < 0 || p.compare(best) <= 0 {
				best, end = p, e
			}
		}
		for g.end() > end && g.up() {
		}
	}
}

const (
	maxSlide  = 100 // lines
	maxIndent = 200 // columns
	maxBlank  = 20  // lines
)

// placement rates a border of a group, or several; less is better. The weights
// are those that Michael Haggerty found on a corpus of diffs rated by people, and
// that git uses.
type placement struct{ indent, penalty int }

func (p placement) plus(q placement) placement {
	return placement{p.indent + q.indent, p.penalty + q.penalty}
}

func (p placement) compare(q placement) int {
	return 60*cmp.Compare(p.indent, q.indent) + p.penalty - q.penalty
}

// place rates a border before lines[at].
func place(lines []string, at int) placement {
	here := noIndent
	if at < len(lines) {
		here = indent(lines[at])
	}
	above, blankAbove := nearest(lines, at-1, -1)
	below, blankBelow := nearest(lines, at+1, 1)

	p := placement{}
	if above == noIndent && blankAbove == 0 {
		p.penalty++ // at the start of the file
	}
	if at >= len(lines) {
		p.penalty += 21
	}
	blank := blankAbove
	if here == noIndent {
		blank += 1 + blankBelow
		p.penalty += 6 * (1 + blankBelow)
		here = below
	}
	p.penalty -= 30 * blank
	p.indent = here
	weigh := func(dense, spaced int) {
		if blank > 0 {
			dense = spaced
		}
		p.penalty += dense
	}
	switch {
	case here == noIndent || above == noIndent || here == above:
	case here > above:
		weigh(-4, 10)
	case below > here: // as with an else
		weigh(24, 17)
	default:
		weigh(23, 17)
	}
	return p
}

// noIndent is that of a blank line, and of what is beyond the text.
const noIndent = -1

// nearest is the indentation of the next line that is not blank, and the number of
// blank ones on the way to it.
func nearest(lines []string, at, step int) (in, blank int) {
	for ; at >= 0 && at < len(lines); at += step {
		if in := indent(lines[at]); in != noIndent {
			return in, blank
		}
		if blank++; blank == maxBlank {
			return 0, blank
		}
	}
	return noIndent, blank
}

// indent is the number of columns before the first character.
func indent(line string) int {
	n := 0
	for _, c := range []byte(line) {
		switch c {
		case ' ':
			n++
		case '\t':
			n += 8 - n%8
		case '\n', '\r':
		default:
			return n
		}
		if n >= maxIndent {
			return maxIndent
		}
	}
	return noIndent
}
