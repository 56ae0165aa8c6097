// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// page is what links need to know of a Markdown file.
type page struct {
	links   []link
	anchors map[string]bool
}

type link struct {
	line        int
	destination string
}

var (
	fence      = regexp.MustCompile("^ {0,3}(```+|~~~+)")
	codeSpan   = regexp.MustCompile("``[^`]+``|`[^`]*`")
	heading    = regexp.MustCompile(`^ {0,3}#{1,6}[ \t]+(.*?)[ \t#]*$`)
	underline  = regexp.MustCompile(`^ {0,3}(=+|-+)[ \t]*$`)
	inline     = regexp.MustCompile(`\]\(\s*(?:<([^>]*)>|((?:[^\s()]|\([^\s()]*\))+))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)`)
	definition = regexp.MustCompile(`^ {0,3}\[[^\]]+\]:\s*(?:<([^>]*)>|(\S+))`)
	attribute  = regexp.MustCompile(`(?i)<[a-z][^>]*?\s(?:href|src)\s*=\s*(?:"([^"]*)"|'([^']*)')`)
	identifier = regexp.MustCompile(`(?i)<[a-z][^>]*?\s(?:id|name)\s*=\s*["']([^"']+)["']`)
	linkText   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// read finds links and anchors, leaving out code.
func read(text string) page {
	p := page{anchors: map[string]bool{}}
	used := map[string]int{}
	var open, previous string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if m := fence.FindStringSubmatch(line); m != nil {
			switch {
			case open == "":
				open = m[1]
			case strings.HasPrefix(m[1], open):
				open = ""
			}
			previous = ""
			continue
		}
		if open != "" {
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			p.addHeading(m[1], used)
		} else if underline.MatchString(line) && strings.TrimSpace(previous) != "" {
			p.addHeading(previous, used)
		}
		p.readLine(i+1, codeSpan.ReplaceAllString(line, ""))
		previous = line
	}
	return p
}

func (p *page) readLine(number int, line string) {
	for _, m := range identifier.FindAllStringSubmatch(line, -1) {
		p.anchors[m[1]] = true
	}
	for _, kind := range []*regexp.Regexp{inline, definition, attribute} {
		for _, m := range kind.FindAllStringSubmatch(line, -1) {
			p.links = append(p.links, link{line: number, destination: m[1] + m[2]})
		}
	}
}

// addHeading adds the anchor that Git hosts give a heading: lower case,
// punctuation dropped, spaces to hyphens, a number for each repetition.
func (p *page) addHeading(text string, used map[string]int) {
	text = linkText.ReplaceAllString(text, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(text)) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r), unicode.IsMark(r):
			b.WriteRune(r)
		}
	}
	anchor := b.String()
	n := used[anchor]
	used[anchor]++
	if n > 0 {
		anchor += "-" + strconv.Itoa(n)
	}
	p.anchors[anchor] = true
}
