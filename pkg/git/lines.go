// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import "strings"

// maxSteps bounds the search for the smallest difference of two texts, a few tenths
// of a second; what is left then counts as replaced.
const maxSteps = 1 << 24

// lineDiff is what makes one text out of another: which lines go, and which come.
type lineDiff struct {
	from, to       []string // lines with their line breaks
	removed, added []bool
}

// diffLines finds a smallest set of lines to remove and to add, and puts those
// that could stand in several places where git puts them.
func diffLines(from, to string) lineDiff {
	d := lineDiff{from: splitLines(from), to: splitLines(to)}
	d.removed, d.added = make([]bool, len(d.from)), make([]bool, len(d.to))

	ids := map[string]int32{}
	number := func(lines []string) []int32 {
		out := make([]int32, len(lines))
		for i, l := range lines {
			id, ok := ids[l]
			if !ok {
				id = int32(len(ids))
				ids[l] = id
			}
			out[i] = id
		}
		return out
	}
	a, b := number(d.from), number(d.to)

	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	endA, endB := len(a), len(b)
	for endA > head && endB > head && a[endA-1] == b[endB-1] {
		endA, endB = endA-1, endB-1
	}
	inA, inB := occurring(a, len(ids)), occurring(b, len(ids))
	m := &matcher{steps: maxSteps}
	m.a, m.atA = candidates(a, head, endA, inB, d.removed)
	m.b, m.atB = candidates(b, head, endB, inA, d.added)
	m.removed, m.added = d.removed, d.added
	m.match(0, len(m.a), 0, len(m.b))

	gapsA, gapsB := gaps(d.removed), gaps(d.added)
	slide(a, d.from, gapsA, gapsB)
	slide(b, d.to, gapsB, gapsA)
	mark(d.removed, gapsA)
	mark(d.added, gapsB)
	return d
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func occurring(lines []int32, ids int) []bool {
	in := make([]bool, ids)
	for _, l := range lines {
		in[l] = true
	}
	return in
}

// candidates are the lines within the range that the other text has as well; the
// others are marked as changed at once. With them is where they are.
func candidates(lines []int32, lo, hi int, other, changed []bool) (ids []int32, at []int) {
	for i := lo; i < hi; i++ {
		if other[lines[i]] {
			ids, at = append(ids, lines[i]), append(at, i)
		} else {
			changed[i] = true
		}
	}
	return ids, at
}

// matcher finds a longest common sequence in linear space: E. W. Myers, "An
// O(ND) Difference Algorithm and Its Variations", 1986, section 4b.
type matcher struct {
	a, b           []int32
	atA, atB       []int // where the lines are in removed and added
	removed, added []bool
	steps          int
	// forward and backward hold, for each diagonal x-y, the furthest x reached.
	forward, backward []int
}

// match marks what differs between a[x0:x1] and b[y0:y1].
func (m *matcher) match(x0, x1, y0, y1 int) {
	for {
		for x0 < x1 && y0 < y1 && m.a[x0] == m.b[y0] {
			x0, y0 = x0+1, y0+1
		}
		for x0 < x1 && y0 < y1 && m.a[x1-1] == m.b[y1-1] {
			x1, y1 = x1-1, y1-1
		}
		if x0 < x1 && y0 < y1 {
			if x, y, ok := m.split(x0, x1, y0, y1); ok {
				m.match(x0, x, y0, y)
				x0, y0 = x, y
				continue
			}
		}
		for ; x0 < x1; x0++ {
			m.removed[m.atA[x0]] = true
		}
		for ; y0 < y1; y0++ {
			m.added[m.atB[y0]] = true
		}
		return
	}
}

const (
	unreachedForward  = -1
	unreachedBackward = int(^uint(0) >> 1)
)

// split finds a point that a shortest path through the box goes through, or, when
// that takes too long, the furthest one that was reached from the start.
func (m *matcher) split(x0, x1, y0, y1 int) (x, y int, ok bool) {
	shift := len(m.b) + 1 // makes every diagonal, and one to each side, an index
	if m.forward == nil {
		m.forward = make([]int, len(m.a)+len(m.b)+3)
		m.backward = make([]int, len(m.a)+len(m.b)+3)
	}
	f, b := m.forward, m.backward
	lowest, highest := x0-y1+shift, x1-y0+shift
	start, end := x0-y0+shift, x1-y1+shift
	fLo, fHi, bLo, bHi := start, start, end, end
	f[start], b[end] = x0, x1
	odd := (start-end)&1 != 0
	for rounds := 1; ; rounds++ {
		fLo, fHi = widen(f, fLo, fHi, lowest, highest, unreachedForward)
		for k := fHi; k >= fLo; k -= 2 {
			x := max(f[k-1]+1, f[k+1])
			from := x
			for x < x1 && x-k+shift < y1 && m.a[x] == m.b[x-k+shift] {
				x++
			}
			m.steps -= x - from + 1
			f[k] = x
			if odd && bLo <= k && k <= bHi && b[k] <= x {
				return x, x - k + shift, true
			}
		}
		bLo, bHi = widen(b, bLo, bHi, lowest, highest, unreachedBackward)
		for k := bHi; k >= bLo; k -= 2 {
			x := b[k-1]
			if x >= b[k+1] {
				x = b[k+1] - 1
			}
			from := x
			for x > x0 && x-k+shift > y0 && m.a[x-1] == m.b[x-k+shift-1] {
				x--
			}
			m.steps -= from - x + 1
			b[k] = x
			if !odd && fLo <= k && k <= fHi && x <= f[k] {
				return x, x - k + shift, true
			}
		}
		if m.steps < 0 {
			return 0, 0, false
		}
		if rounds*rounds > maxRounds*maxRounds+len(m.a)+len(m.b) {
			return m.furthest(x0, x1, y0, y1, fLo, fHi, shift)
		}
	}
}

// maxRounds is the number of differences up to which a split is always the best.
const maxRounds = 256

// widen lets the search use one diagonal more on each side, within the box.
func widen(reached []int, lo, hi, lowest, highest, unreached int) (newLo, newHi int) {
	if lo > lowest {
		lo--
		reached[lo-1] = unreached
	} else {
		lo++
	}
	if hi < highest {
		hi++
		reached[hi+1] = unreached
	} else {
		hi--
	}
	return lo, hi
}

func (m *matcher) furthest(x0, x1, y0, y1, lo, hi, shift int) (x, y int, ok bool) {
	for k := lo; k <= hi; k += 2 {
		kx := min(m.forward[k], x1)
		ky := kx - k + shift
		if ky > y1 {
			kx, ky = kx-(ky-y1), y1
		}
		if kx >= x0 && ky >= y0 && (!ok || kx+ky > x+y) {
			x, y, ok = kx, ky, true
		}
	}
	return x, y, ok && x+y > x0+y0 && x+y < x1+y1
}
