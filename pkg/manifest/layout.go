// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
)

// Object names an object of the cluster. A deletion may know only the resource;
// where Kind is empty, it is taken for the kind whose plural the resource is.
type Object struct {
	Group, Kind, Resource, Namespace, Name string
}

func (o Object) String() string {
	return identity{o.Group, cmp.Or(o.Kind, o.Resource), o.Namespace, o.Name}.String()
}

// is reports whether an entry is the object, namespaces aside.
func (o Object) is(e Entry) bool {
	if e.Name != o.Name || e.Group != o.Group {
		return false
	}
	if o.Kind != "" {
		return e.Kind == o.Kind
	}
	return plural(e.Kind, o.Resource)
}

// plural reports whether a resource may be called so after the kind, by the rules
// of English and with the hyphens that some put in.
func plural(kind, resource string) bool {
	kind, resource = strings.ToLower(kind), strings.ReplaceAll(resource, "-", "")
	stem, y := strings.CutSuffix(kind, "y")
	return resource == kind || resource == kind+"s" || resource == kind+"es" || y && resource == stem+"ies"
}

// Location is where an object is, or goes.
type Location struct {
	// Path of the file, slash-separated, from the root of the repository.
	Path string
	// Entry of the object in that file; nil when no file has it, and Path is where
	// it goes.
	Entry *Entry
}

// Layout knows which file under a target's path has which object (C13). It is not
// safe for concurrent use: share it read-only, or not at all.
type Layout struct {
	base  string
	files map[string]File
	// holders are the paths of the files that have entries of this group and name.
	holders map[[2]string][]string
}

// NewLayout returns the layout of a tree without files. base is the target's path.
func NewLayout(base string) *Layout {
	return &Layout{base: base, files: map[string]File{}, holders: map[[2]string][]string{}}
}

// Set says what the file at a path under base holds now; the zero File says that
// it holds nothing, or is gone.
func (l *Layout) Set(path string, file File) {
	for _, e := range l.files[path].Entries {
		key := [2]string{e.Group, e.Name}
		others := slices.DeleteFunc(slices.Clone(l.holders[key]), func(p string) bool { return p == path })
		if l.holders[key] = others; len(others) == 0 {
			delete(l.holders, key)
		}
	}
	delete(l.files, path)
	if len(file.Entries) == 0 && file.Problem == nil {
		return
	}
	l.files[path] = file
	for _, e := range file.Entries {
		key := [2]string{e.Group, e.Name}
		if !slices.Contains(l.holders[key], path) {
			l.holders[key] = append(l.holders[key], path)
		}
	}
}

// Place says which file has the object, or where it goes (C13). In this order:
//
//   - the one document that names the object with its namespace, in whatever file;
//   - the one document that names it without a namespace, in a file under the
//     namespace's own directory, base/namespace: elsewhere it may be anyone's;
//   - the one such document that cannot be read: Edit will refuse it, and it is not
//     written a second time elsewhere;
//   - the canonical path (see Path).
//
// An object in several documents is a *RefusedError that names them all: to choose
// one is to guess.
func (l *Layout) Place(o Object) (Location, error) {
	canonical := Path(l.base, o.Group, o.Resource, o.Namespace, o.Name)
	var ranks [4][]Location
	for _, file := range slices.Sorted(slices.Values(l.holders[[2]string{o.Group, o.Name}])) {
		entries := l.files[file].Entries
		for i := range entries {
			e := &entries[i]
			// The canonical path names the resource, whatever its plural.
			if !o.is(*e) && (o.Kind != "" || file != canonical || e.Name != o.Name) {
				continue
			}
			rank := 0
			switch {
			case e.Namespace == o.Namespace:
			case e.Namespace == "" && strings.HasPrefix(file, directory(l.base, o.Namespace)):
				rank = 1
			default:
				continue
			}
			if e.Unsound {
				rank += 2
			}
			ranks[rank] = append(ranks[rank], Location{Path: file, Entry: e})
		}
	}
	for _, found := range ranks {
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		places := make([]string, len(found))
		for i, at := range found {
			places[i] = fmt.Sprintf("%s line %d", at.Path, at.Entry.Line)
		}
		return Location{}, duplicate(o, 0, places...)
	}
	return Location{Path: canonical}, nil
}

func directory(base, namespace string) string {
	return path.Join(base, namespace) + "/"
}

// Objects returns the objects of a resource in a namespace that some file has, by
// name, each once: what Place finds, and Remove removes. kind may be empty, as in
// Object. Documents without a namespace count as they do for Place; those that
// cannot be read do not.
func (l *Layout) Objects(group, kind, resource, namespace string) []Object {
	found := map[string]Object{}
	for name, file := range l.files {
		for _, e := range file.Entries {
			o := Object{Group: group, Kind: kind, Resource: resource, Namespace: namespace, Name: e.Name}
			matches := o.is(e) || kind == "" && e.Group == group && name == Path(l.base, group, resource, namespace, e.Name)
			inNamespace := e.Namespace == namespace || e.Namespace == "" && strings.HasPrefix(name, directory(l.base, namespace))
			if matches && inNamespace && !e.Unsound {
				o.Kind = e.Kind
				found[e.Name] = o
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Object) int { return cmp.Compare(a.Name, b.Name) })
}

// Problems returns the files that cannot be edited, by path, each with its first
// reason. They are never rewritten.
func (l *Layout) Problems() iter.Seq2[string, *RefusedError] {
	return func(yield func(string, *RefusedError) bool) {
		for _, path := range slices.Sorted(maps.Keys(l.files)) {
			if problem := l.files[path].Problem; problem != nil && !yield(path, problem) {
				return
			}
		}
	}
}
