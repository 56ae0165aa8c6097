// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File says which objects the bytes of one file hold (C13). It is a function of
// the bytes, so it may be kept by their hash, for as long as IndexVersion is the
// same. A file that has nothing to do with objects is the zero File.
type File struct {
	Entries []Entry `json:"entries,omitempty"`
	// Problem is the first reason why the file, or one of its documents, cannot be
	// edited; nil for a sound file.
	Problem *RefusedError `json:"problem,omitempty"`
}

// IndexVersion changes with what Index finds in the same bytes.
const IndexVersion = 1

// Entry is one object in a file. Namespace is empty where the document names none:
// the object is cluster-scoped, or whoever applies the file says where it goes.
type Entry struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Line where the object begins, counted from 1.
	Line int `json:"line"`
	// Document counts from 0 and passes over empty ones.
	Document int `json:"document,omitempty"`
	// Item counts the items of a List from 1; 0 is the document itself.
	Item int `json:"item,omitempty"`
	// Unsound: the document cannot be read, but it shows this name. Such an entry
	// keeps the object from being written a second time elsewhere.
	Unsound bool `json:"unsound,omitempty"`
}

func (e Entry) String() string {
	return identity{e.Group, e.Kind, e.Namespace, e.Name}.String()
}

// IsManifest reports whether a file of this name may hold objects: the names that
// kubectl reads in a directory.
func IsManifest(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// Index finds the objects in a file. It reads what is readable of a broken one.
func Index(content []byte) File {
	var file File
	count := 0
	for _, d := range split(content) {
		var node yaml.Node
		if err := yaml.Unmarshal(d.text, &node); err != nil {
			if e, ok := guess(d); ok {
				e.Document = count
				file.Entries = append(file.Entries, e)
			}
			file.broken(unreadable(d))
			count++
			continue
		}
		if len(node.Content) == 0 || isNull(node.Content[0]) {
			continue
		}
		d.root = node.Content[0]
		entries := d.entries(count)
		count++
		err := d.check(d.root)
		if err == nil {
			err = encrypted(d)
		}
		if isTemplate := err != nil && err.Reason == Template; isTemplate {
			for i := range entries {
				entries[i].Unsound = true
			}
		} else if len(entries) == 0 {
			continue // what is wrong with a foreign format is not ours to judge
		}
		file.Entries = append(file.Entries, entries...)
		if err != nil {
			file.broken(err)
		}
	}
	return file
}

func (f *File) broken(err *RefusedError) {
	if f.Problem == nil {
		f.Problem = err
	}
}

// entries returns the objects of a document.
func (d *document) entries(number int) []Entry {
	var found []Entry
	add := func(n *yaml.Node, item int) {
		if e, ok := entry(n); ok {
			e.Line, e.Document, e.Item = d.at(n), number, item
			found = append(found, e)
		}
	}
	add(d.root, 0)
	if items := field(d.root, "items"); items != nil && items.Kind == yaml.SequenceNode {
		for i, item := range items.Content {
			add(item, i+1)
		}
	}
	return found
}

// entry reads what names an object. Without kind and name there is none.
func entry(n *yaml.Node) (Entry, bool) {
	metadata := lookUp(n, "metadata")
	apiVersion := text(lookUp(n, "apiVersion"))
	e := Entry{Group: groupOf(apiVersion), Kind: text(lookUp(n, "kind")), Namespace: text(lookUp(metadata, "namespace")), Name: text(lookUp(metadata, "name"))}
	return e, apiVersion != "" && e.Kind != "" && e.Name != ""
}

// lookUp is field through aliases and merged maps.
func lookUp(n *yaml.Node, key string) *yaml.Node {
	// The parser refuses anchors that contain themselves; the bound is for merges
	// that lead through each other.
	for range 8 {
		if n != nil && n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		if value := field(n, key); value != nil {
			if value.Kind == yaml.AliasNode {
				return value.Alias
			}
			return value
		}
		n = field(n, "<<")
	}
	return nil
}

func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

func groupOf(apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return group
	}
	return ""
}

// guess reads the name that a document shows which cannot be parsed: plain lines at
// the left edge, and the first level of metadata.
func guess(d *document) (Entry, bool) {
	e := Entry{Unsound: true}
	var versioned, within bool
	indent, number := 0, d.line
	for line := range bytes.Lines(d.text) {
		number++
		key, value, ok := strings.Cut(strings.TrimRight(string(line), " \t\r\n"), ":")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		value, _, _ = strings.Cut(value, " #")
		value = strings.Trim(value, " \t\"'")
		if strings.Contains(value, "{{") {
			value = ""
		}
		depth := len(key) - len(strings.TrimLeft(key, " "))
		switch {
		case depth == 0:
			within, indent = key == "metadata", 0
			if e.Line == 0 {
				e.Line = number
			}
			switch key {
			case "apiVersion":
				e.Group, versioned = groupOf(value), value != ""
			case "kind":
				e.Kind = value
			}
		case within:
			if indent == 0 {
				indent = depth
			}
			if depth != indent {
				continue
			}
			switch strings.TrimSpace(key) {
			case "name":
				e.Name = value
			case "namespace":
				e.Namespace = value
			}
		}
	}
	return e, versioned && e.Kind != "" && e.Name != ""
}

// duplicate is a *RefusedError for an object that is in several places.
func duplicate(what fmt.Stringer, line int, places ...string) *RefusedError {
	return &RefusedError{Reason: SeveralOwners, Line: line, Detail: fmt.Sprintf("%v is in %s", what, strings.Join(places, " and in "))}
}
