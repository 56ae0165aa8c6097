// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Remove returns the bytes of a file without the object; nil when nothing else is
// in it, so that the file may go. The other documents, and the other items of a
// List, keep their bytes (C14). A comment that is apart from the object at the top
// of the file stays.
//
// A file that does not hold the object, or from which it cannot be taken without
// guessing, is a *RefusedError.
func Remove(before []byte, object Object) ([]byte, error) {
	documents, err := parse(before)
	if err != nil {
		return nil, err
	}
	if len(documents) == 0 {
		return nil, &RefusedError{Reason: OtherObject, Detail: "the file holds no object"}
	}
	found, err := locate(documents, object.Namespace, func(i identity) bool {
		return object.is(Entry{Group: i.group, Kind: i.kind, Name: i.name})
	}, object)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch {
	case found.item >= 0 && len(field(found.document.root, "items").Content) > 1:
		if after, err = found.withoutItem(before); err != nil {
			return nil, err
		}
	case len(documents) == 1:
		return nil, nil
	default:
		after = found.document.cutOut(before)
		documents = slices.DeleteFunc(documents, func(d *document) bool { return d == found.document })
		if !sameDocuments(documents, after) {
			return nil, &RefusedError{Reason: NotEditable, Line: found.document.at(found.node), Detail: fmt.Sprintf("%v cannot be told from its neighbours", object)}
		}
	}
	return after, nil
}

// withoutItem takes an item out of a List.
func (p place) withoutItem(file []byte) ([]byte, error) {
	if err := encrypted(p.document); err != nil {
		return nil, err
	}
	list, err := read(p.document.text)
	if err != nil {
		return nil, err
	}
	whole := place{document: p.document, node: p.document.root, value: list, item: -1}
	want := maps.Clone(list)
	items := list["items"].([]any)
	want["items"] = slices.Delete(slices.Clone(items), p.item, p.item+1)
	return whole.splice(file, want)
}

// cutOut returns the file without the document and the marker that begins it.
func (d *document) cutOut(file []byte) []byte {
	start, end := d.offset, d.offset+len(d.text)
	if d.begins < start {
		return slices.Concat(file[:d.begins], file[end:])
	}
	// The first one: what stands above it, apart, is about the file.
	at := d.lineStart(d.begin(d.root))
	for at > 0 {
		above := d.lineStart(at - 1)
		if line := bytes.TrimSpace(d.text[above:at]); len(line) == 0 || line[0] != '#' {
			break
		}
		at = above
	}
	head := d.text[:at]
	if len(bytes.TrimSpace(head)) > 0 {
		return slices.Concat(file[:start], head, file[end:])
	}
	// The next marker has nothing to divide then, unless more is on its line.
	rest := file[end:]
	if line, next, ok := bytes.Cut(rest, []byte("\n")); ok && len(bytes.TrimSpace(line[len(marker):])) == 0 {
		rest = next
	}
	return slices.Concat(file[:start], rest)
}

// sameDocuments reports whether the file has these documents and no others.
func sameDocuments(want []*document, file []byte) bool {
	have, err := parse(file)
	if err != nil || len(have) != len(want) {
		return false
	}
	for i, d := range want {
		var before, after any
		if yaml.Unmarshal(d.text, &before) != nil || yaml.Unmarshal(have[i].text, &after) != nil || !reflect.DeepEqual(before, after) {
			return false
		}
	}
	return true
}
