// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// words are plain scalars that some YAML 1.1 or 1.2 reader takes for a boolean or
// null, in lower case.
var words = map[string]bool{
	"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true,
	"true": true, "false": true, "null": true, "nil": true, "none": true,
	"inf": true, "infinity": true, "nan": true,
}

// quantity is the one kind of string with a leading digit that is written plain:
// digits and a unit that occurs in no notation of numbers.
var quantity = regexp.MustCompile(`^(0|[1-9][0-9]*)(m|Ki|Mi|Gi|Ti|Pi|Ei|M|G|T|P|s|ms|h)$`)

// scalar returns the value on one line, quoted when it has to be.
func scalar(value any, path string) (string, error) {
	switch v := value.(type) {
	case nil:
		return "null", nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case int:
		return strconv.Itoa(v), nil
	case int32:
		return strconv.FormatInt(int64(v), 10), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "", &ValueError{Path: path, Problem: "not a finite number"}
		}
		return float(v), nil
	case string:
		if !utf8.ValidString(v) {
			return "", &ValueError{Path: path, Problem: "text that is not valid UTF-8"}
		}
		if plain(v) {
			return v, nil
		}
		return quote(v), nil
	default:
		return "", &ValueError{Path: path, Problem: fmt.Sprintf("a value of type %T", value)}
	}
}

// float writes the shortest notation that every reader takes for this number. One
// without fraction is written as an integer while that is exact, as encoding/json
// does, because the server does not tell 1 from 1.0.
func float(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
		if v == 0 {
			return "0" // the server does not tell the sign of zero either
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	if a := math.Abs(v); a >= 1e-6 && a < 1<<63 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	s := strconv.FormatFloat(v, 'e', -1, 64)
	// YAML 1.1 readers want a point before the exponent.
	if mantissa, exponent, _ := strings.Cut(s, "e"); !strings.Contains(mantissa, ".") {
		return mantissa + ".0e" + exponent
	}
	return s
}

// plain reports whether the string can stand without quotes: every reader takes
// it for this string, as a key and as a value, in block style. Where in doubt, it
// cannot.
func plain(s string) bool {
	if s == "" || words[strings.ToLower(s)] {
		return false
	}
	start, _ := utf8.DecodeRuneInString(s)
	switch {
	case unicode.IsLetter(start), start == '_', start == '/', start > unicode.MaxASCII:
	case start >= '0' && start <= '9':
		return quantity.MatchString(s)
	default: // signs, dots, indicators, "=", "<<", "~"
		return false
	}
	if strings.HasSuffix(s, " ") || strings.HasSuffix(s, ":") ||
		strings.Contains(s, ": ") || strings.Contains(s, " #") {
		return false
	}
	for _, r := range s {
		if r != ' ' && !printable(r) {
			return false
		}
	}
	return true
}

// printable reports whether the character may stand in a file as it is. Emoji and
// accents may; control characters, the many kinds of white space and what turns
// or joins the text around it may not: a reviewer could not see them.
func printable(r rune) bool {
	return unicode.IsPrint(r) && r != utf8.RuneError || r == '\u200d' || r == '\ufe0f'
}

// quote returns the string in double quotes, on one line.
func quote(s string) string { return quoted(s, `\x%02X`, `\U%08X`) }

// quoteJSON returns the string as both JSON and YAML have it. A character beyond
// the basic plane that has to be escaped cannot be: the result is read back.
func quoteJSON(s string) string { return quoted(s, `\u%04X`, `\u%X`) }

// quoted is given how the shortest and the longest escapes look.
func quoted(s, short, long string) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == ' ' || printable(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, short, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			fmt.Fprintf(&b, long, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// blockHeader returns the header of a literal block for the string, and whether a
// block carries it exactly.
func blockHeader(s string) (string, bool) {
	body := strings.TrimRight(s, "\n")
	if body == "" || !strings.Contains(s, "\n") || !utf8.ValidString(s) {
		return "", false
	}
	for _, r := range s {
		if r != '\n' && r != ' ' && r != '\t' && !printable(r) {
			return "", false
		}
	}
	// Blank lines are written without indentation; a line of blanks only would not
	// be told from them by eye, and trimming editors would change it.
	for line := range strings.Lines(body) {
		if line != "\n" && strings.TrimSpace(line) == "" {
			return "", false
		}
	}
	// kustomize's reader takes a tab that opens the text for bad indentation.
	if strings.HasPrefix(strings.TrimLeft(body, "\n"), "\t") {
		return "", false
	}
	header := "|"
	if strings.ContainsRune(" \n", rune(s[0])) {
		header += "2" // the first line does not show the indentation
	}
	switch len(s) - len(body) {
	case 0:
		header += "-"
	case 1:
	default:
		header += "+"
	}
	return header, true
}
