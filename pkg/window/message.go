// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxSubject is the longest subject of a generated message, in characters (C15).
const maxSubject = 72

// Message is the commit message of w. A request's message is used verbatim. Else
// a message is generated: the subject says how many of what changed where, and
// the body has one object a line, in the order in which they were seen (C15).
// Neither ends with a line break, unless the request's does.
//
// changed are the paths that the commit really changes; objects that Git had as
// they are already are then left out. Nil: all of them changed. The same write
// and paths always make the same message.
func Message(w Write, changed []string) string {
	if w.Request != nil && w.Request.Message != "" {
		return w.Request.Message
	}
	changes := w.Changes
	if changed != nil {
		changes = onPaths(changes, changed)
	}
	if len(changes) == 0 {
		return "Save without changes"
	}
	var b strings.Builder
	b.WriteString(subject(w.Kind, changes))
	b.WriteString("\n\n")
	for i, c := range changes {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(line(c))
	}
	if w.Author.Unresolved {
		b.WriteString("\n\nAuthor: " + UnresolvedName)
	}
	return b.String()
}

// subject is the most telling of the sentences that fit.
func subject(kind WriteKind, changes []Change) string {
	verb := verbOf(kind, changes)
	where := places(changes)
	kinds := countKinds(changes)

	var candidates []string
	if len(changes) == 1 {
		candidates = append(candidates, fmt.Sprintf("%s %s/%s%s", verb, resource(changes[0].Object), printable(changes[0].Object.Name), where))
	}
	counts := make([]string, 0, len(kinds))
	for _, k := range kinds {
		counts = append(counts, fmt.Sprintf("%d %s", k.count, k.resource))
	}
	objects := fmt.Sprintf("%d object", len(changes))
	if len(changes) > 1 {
		objects += "s"
	}
	candidates = append(candidates,
		fmt.Sprintf("%s %s%s", verb, strings.Join(counts, ", "), where),
		fmt.Sprintf("%s %s%s", verb, objects, where),
	)
	for _, c := range candidates {
		if utf8.RuneCountInString(c) <= maxSubject {
			return c
		}
	}
	return fmt.Sprintf("%s %s", verb, objects)
}

// verbOf is what happened to all of the changes.
func verbOf(kind WriteKind, changes []Change) string {
	if kind == ResyncWrite {
		return "Resync"
	}
	for _, c := range changes[1:] {
		if c.Operation != changes[0].Operation {
			return "Change"
		}
	}
	switch changes[0].Operation {
	case Create:
		return "Create"
	case Delete:
		return "Delete"
	case Update:
		return "Update"
	}
	return "Change"
}

// places says where all of the changes are.
func places(changes []Change) string {
	var namespaces []string
	for _, c := range changes {
		if n := c.Object.Namespace; n != "" && !slices.Contains(namespaces, n) {
			namespaces = append(namespaces, n)
		}
	}
	switch len(namespaces) {
	case 0:
		return ""
	case 1:
		return " in " + namespaces[0]
	}
	return fmt.Sprintf(" in %d namespaces", len(namespaces))
}

type kindCount struct {
	resource string
	count    int
}

// countKinds counts the changes by resource, in the order first seen.
func countKinds(changes []Change) []kindCount {
	var kinds []kindCount
	for _, c := range changes {
		name := resource(c.Object)
		i := slices.IndexFunc(kinds, func(k kindCount) bool { return k.resource == name })
		if i < 0 {
			kinds = append(kinds, kindCount{resource: name})
			i = len(kinds) - 1
		}
		kinds[i].count++
	}
	return kinds
}

// line is one object of the body.
func line(c Change) string {
	name := printable(c.Object.Name)
	if c.Object.Namespace != "" {
		name = c.Object.Namespace + "/" + name
	}
	operation := c.Operation
	if operation == "" { // a list shows what is, not what happened
		operation = Update
		if c.Manifest == nil {
			operation = Delete
		}
	}
	return fmt.Sprintf("%s %s %s", operation, resource(c.Object), name)
}

// resource is the object's resource as kubectl takes it.
func resource(o Object) string {
	if o.Group == "" {
		return o.Resource
	}
	return o.Resource + "." + o.Group
}

// printable keeps a name on its line: Kubernetes lets some resources have nearly
// any character in their names.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, name)
}

// onPaths are the changes whose files are among paths. Where a file is not
// placed as C13 says it cannot be told whose it is; then the objects that have no
// file of theirs are kept too.
func onPaths(changes []Change, paths []string) []Change {
	placed := make(map[string]bool, len(paths))
	for _, p := range paths {
		placed[p] = true
		for i, char := range p {
			if char == '/' {
				placed[p[i+1:]] = true
			}
		}
	}
	var found []Change
	for _, c := range changes {
		if placed[fileSuffix(c.Object)] {
			found = append(found, c)
		}
	}
	if len(found) < len(paths) {
		return changes
	}
	return found
}

// fileSuffix is where C13 places an object, below the target's path.
func fileSuffix(o Object) string {
	suffix := resource(o) + "/" + o.Name + ".yaml"
	if o.Namespace != "" {
		suffix = o.Namespace + "/" + suffix
	}
	return suffix
}
