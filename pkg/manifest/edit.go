// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// Reason says why a file is not edited.
type Reason string

// The reasons to refuse a file (C14).
const (
	// Unreadable: not YAML.
	Unreadable Reason = "Unreadable"
	// Template: text that is YAML only after a template engine ran.
	Template Reason = "Template"
	// DuplicateKey: readers disagree on which of two values counts.
	DuplicateKey Reason = "DuplicateKey"
	// OtherObject: the file holds something else.
	OtherObject Reason = "OtherObject"
	// SeveralOwners: the object is in the file more than once.
	SeveralOwners Reason = "SeveralOwners"
	// Encrypted: values that only the holder of a key can write.
	Encrypted Reason = "Encrypted"
	// NotEditable: the change cannot be made in place.
	NotEditable Reason = "NotEditable"
)

// RefusedError: a file in Git cannot be edited without guessing. It is left as it
// is.
type RefusedError struct {
	Reason Reason `json:"reason"`
	// Line that it is about, counted from 1; 0 when it is not one line.
	Line int `json:"line,omitempty"`
	// Detail names what was found there.
	Detail string `json:"detail"`
}

func (e *RefusedError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s; edit or remove the file in Git to have the object saved", e.Reason, e.Detail)
	}
	return fmt.Sprintf("line %d: %s: %s; edit or remove the file in Git to have the object saved", e.Line, e.Reason, e.Detail)
}

// Edit returns the bytes of a file that says what intent says: intent is what
// Render returns, before is the file in Git, nil or empty when there is none. A
// file that already says it, in whatever spelling, is returned as it is; otherwise
// only the bytes of the values that changed are other ones (C14). The object may be
// one of several documents, or an item of a List. A document without a namespace
// is the object's when no other is, and stays without: Layout.Place says whether
// the file may have one.
//
// A file that cannot be edited without guessing is a *RefusedError.
func Edit(before, intent []byte) ([]byte, error) {
	want, err := read(intent)
	if err != nil {
		return nil, fmt.Errorf("the new manifest: %w", err)
	}
	documents, err := parse(before)
	if err != nil {
		return nil, err
	}
	if len(documents) == 0 { // nothing but comments, or nothing
		return concat(before, intent), nil
	}
	wanted := identify(want)
	found, err := locate(documents, wanted.namespace, func(i identity) bool {
		i.namespace = wanted.namespace
		return i == wanted
	}, wanted)
	if err != nil {
		return nil, err
	}
	if err := encrypted(found.document); err != nil {
		return nil, err
	}
	if identify(found.value).namespace == "" && wanted.namespace != "" {
		delete(want["metadata"].(map[string]any), "namespace")
	}
	want = respelled(found.value, want)
	if reflect.DeepEqual(found.value, want) {
		return before, nil
	}
	if canonical, err := encode(found.value); err == nil && bytes.Equal(canonical, before) {
		return encode(want) // a file of ours: its lines differ where the values do
	}
	return found.splice(before, want)
}

// respelled returns what the file should say: want as have spells it, where that is
// the same object to the server.
func respelled(have, want map[string]any) map[string]any {
	want = spellQuantities(have, want).(map[string]any)
	return keepZeros(have, omitDefaults(have, want))
}

// concat puts a document behind a file of comments.
func concat(comments, document []byte) []byte {
	if len(bytes.TrimSpace(comments)) == 0 {
		return document
	}
	if !bytes.HasSuffix(comments, []byte("\n")) {
		document = append([]byte("\n"), document...)
	}
	return slices.Concat(comments, document)
}

// place is where an object is in a file.
type place struct {
	document *document
	node     *yaml.Node
	value    map[string]any
	// item is the index in a List; -1 when the object is the whole document.
	item int
}

// locate finds the one place that holds the object: one in its namespace, or else
// one in none. is compares all but that; object is its name in errors.
func locate(documents []*document, namespace string, is func(identity) bool, object fmt.Stringer) (place, error) {
	var exact, loose []place
	var other identity
	consider := func(p place) {
		switch i := identify(p.value); {
		case !is(i):
		case i.namespace == namespace:
			exact = append(exact, p)
		case i.namespace == "":
			loose = append(loose, p)
		}
	}
	for i, d := range documents {
		value, err := read(d.text)
		if err != nil {
			return place{}, &RefusedError{Reason: Unreadable, Line: d.line + 1, Detail: err.Error()}
		}
		if i == 0 {
			other = identify(value)
		}
		consider(place{document: d, node: d.root, value: value, item: -1})
		items, _ := value["items"].([]any)
		nodes := field(d.root, "items")
		if nodes == nil || nodes.Kind != yaml.SequenceNode || len(nodes.Content) != len(items) {
			continue
		}
		for i, item := range items {
			if item, ok := item.(map[string]any); ok {
				consider(place{document: d, node: nodes.Content[i], value: item, item: i})
			}
		}
	}
	found := exact
	if len(exact) == 0 {
		found = loose
	}
	switch len(found) {
	case 0:
		return place{}, &RefusedError{Reason: OtherObject, Line: documents[0].at(documents[0].root), Detail: fmt.Sprintf("the file holds %v, not %v", other, object)}
	case 1:
		return found[0], nil
	}
	lines := make([]string, len(found))
	for i, p := range found {
		lines[i] = fmt.Sprintf("line %d", p.document.at(p.node))
	}
	return place{}, duplicate(object, found[1].document.at(found[1].node), lines...)
}

// field returns the value of a key of a mapping, nil when it has none.
func field(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// read returns the values of a one-document file as kubectl sees them.
func read(document []byte) (map[string]any, error) {
	asJSON, err := sigsyaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := utiljson.Unmarshal(asJSON, &object); err != nil {
		return nil, err
	}
	return object, nil
}

// identity is what makes two manifests speak of one object; versions of one group
// are spellings of it.
type identity struct{ group, kind, namespace, name string }

func (i identity) String() string {
	kind := i.kind
	if i.group != "" {
		kind += "." + i.group
	}
	if i.namespace == "" {
		return fmt.Sprintf("%s %q", kind, i.name)
	}
	return fmt.Sprintf("%s %q in namespace %q", kind, i.name, i.namespace)
}

func identify(object map[string]any) identity {
	metadata, _ := object["metadata"].(map[string]any)
	text := func(m map[string]any, key string) string {
		s, _ := m[key].(string)
		return s
	}
	return identity{group: groupOf(text(object, "apiVersion")), kind: text(object, "kind"), namespace: text(metadata, "namespace"), name: text(metadata, "name")}
}
