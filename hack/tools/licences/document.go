// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
)

// The table stands between these lines of the document.
const (
	beginTable = "<!-- begin: written by make update-licences -->\n"
	endTable   = "<!-- end -->\n"
)

func table(modules []module) string {
	var b strings.Builder
	for _, direct := range []bool{true, false} {
		heading := "Direct"
		if !direct {
			heading = "Indirect"
		}
		fmt.Fprintf(&b, "\n### %s\n\n| module | version | licence |\n| --- | --- | --- |\n", heading)
		for _, m := range modules {
			if m.Direct == direct {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", m.Path, m.Version, strings.Join(m.licences, ", "))
			}
		}
	}
	b.WriteString("\n")
	return b.String()
}

// splice replaces what stands between the two marker lines.
func splice(doc []byte, table string) ([]byte, error) {
	before, rest, ok := bytes.Cut(doc, []byte(beginTable))
	if !ok {
		return nil, fmt.Errorf("%s lacks the line %q", document, strings.TrimSpace(beginTable))
	}
	_, after, ok := bytes.Cut(rest, []byte(endTable))
	if !ok {
		return nil, fmt.Errorf("%s lacks the line %q", document, strings.TrimSpace(endTable))
	}
	return bytes.Join([][]byte{before, []byte(beginTable), []byte(table), []byte(endTable), after}, nil), nil
}
