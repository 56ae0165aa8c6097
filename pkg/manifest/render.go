// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ValueError: the object holds a value that no YAML file can carry exactly.
type ValueError struct {
	// Path of the value in the object, dot-separated.
	Path string
	// Problem says what is wrong with it.
	Problem string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("%s: %s; correct the value in the cluster to have the object saved", e.Path, e.Problem)
}

// first are the keys that lead a manifest, in this order; the rest is sorted.
var first = []string{"apiVersion", "kind", "metadata"}

// maxSimpleKey is the length in bytes up to which "key:" is used; the readers
// refuse simple keys of more than 1024 characters.
const maxSimpleKey = 512

// Render returns the object's intent (C2) as one YAML document without a leading
// separator. The same object always renders to the same bytes, and both
// sigs.k8s.io/yaml and go.yaml.in/yaml/v3 read the values back that went in.
// Strings that some reader would take for something else are quoted; text of
// several lines is written as a block where that is exact.
//
// A value that YAML cannot carry is a *ValueError.
func Render(u *unstructured.Unstructured) ([]byte, error) {
	return encode(intent(u))
}

// encode writes a whole document.
func encode(object map[string]any) ([]byte, error) {
	e := encoder{}
	keys := slices.SortedFunc(maps.Keys(object), func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	if len(keys) == 0 {
		return []byte("{}\n"), nil
	}
	for _, key := range keys {
		if err := e.entry(object, key, 0, key); err != nil {
			return nil, err
		}
	}
	return e.out.Bytes(), nil
}

func rank(key string) int {
	if i := slices.Index(first, key); i >= 0 {
		return i
	}
	return len(first)
}

// encoder writes block style: maps indented by two, lists flush with their key as
// kubectl prints them.
type encoder struct{ out bytes.Buffer }

func (e *encoder) indent(n int) {
	for range n {
		e.out.WriteByte(' ')
	}
}

// entry writes "key: value" and the line end, the cursor being at column indent.
func (e *encoder) entry(m map[string]any, key string, indent int, path string) error {
	k, err := scalar(key, path)
	if err != nil {
		return err
	}
	if len(k) > maxSimpleKey {
		e.out.WriteString("? " + k + "\n")
		e.indent(indent)
		e.out.WriteByte(':')
	} else {
		e.out.WriteString(k + ":")
	}
	switch v := m[key].(type) {
	case map[string]any:
		if len(v) == 0 {
			break
		}
		e.out.WriteByte('\n')
		e.indent(indent + 2)
		return e.mapping(v, indent+2, path)
	case []any:
		if len(v) == 0 {
			break
		}
		e.out.WriteByte('\n')
		e.indent(indent)
		return e.sequence(v, indent, path)
	}
	e.out.WriteByte(' ')
	return e.leaf(m[key], indent, path)
}

// mapping writes a map that is not empty, the cursor being at column indent.
func (e *encoder) mapping(m map[string]any, indent int, path string) error {
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			e.indent(indent)
		}
		if err := e.entry(m, key, indent, path+"."+key); err != nil {
			return err
		}
	}
	return nil
}

// sequence writes a list that is not empty, the cursor being at column indent.
func (e *encoder) sequence(list []any, indent int, path string) error {
	for i, item := range list {
		if i > 0 {
			e.indent(indent)
		}
		e.out.WriteString("- ")
		itemPath := fmt.Sprintf("%s[%d]", path, i)
		var err error
		switch v := item.(type) {
		case map[string]any:
			if len(v) > 0 {
				err = e.mapping(v, indent+2, itemPath)
				break
			}
			err = e.leaf(item, indent, itemPath)
		case []any:
			if len(v) > 0 {
				err = e.sequence(v, indent+2, itemPath)
				break
			}
			err = e.leaf(item, indent, itemPath)
		default:
			err = e.leaf(item, indent, itemPath)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leaf writes what is not split over nested entries, and the line end. indent is
// the column of the key or dash that it belongs to.
func (e *encoder) leaf(value any, indent int, path string) error {
	switch v := value.(type) {
	case map[string]any:
		e.out.WriteString("{}\n")
		return nil
	case []any:
		e.out.WriteString("[]\n")
		return nil
	case string:
		if header, ok := blockHeader(v); ok {
			e.block(header, v, indent+2)
			return nil
		}
	}
	text, err := scalar(value, path)
	if err != nil {
		return err
	}
	e.out.WriteString(text + "\n")
	return nil
}

// block writes a literal block scalar, the lines at column indent.
func (e *encoder) block(header, text string, indent int) {
	e.out.WriteString(header + "\n")
	for line := range strings.Lines(text) {
		if line != "\n" {
			e.indent(indent)
		}
		e.out.WriteString(line)
	}
	if !strings.HasSuffix(text, "\n") {
		e.out.WriteByte('\n')
	}
}

// KindOf reads the kind from what Render made, without parsing it; "" when there is
// none.
func KindOf(rendered []byte) string {
	for line := range bytes.Lines(rendered) {
		if kind, ok := bytes.CutPrefix(line, []byte("kind: ")); ok {
			return string(bytes.Trim(kind, "\"'\r\n"))
		}
	}
	return ""
}
