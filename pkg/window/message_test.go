// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func object(operation Operation, group, resource, namespace, name string) Change {
	return Change{Operation: operation, Object: Object{Group: group, Resource: resource, Namespace: namespace, Name: name}}
}

func TestMessage(t *testing.T) {
	web := object(Update, "apps", "deployments", "shop", "web")
	db := object(Update, "apps", "deployments", "shop", "db")
	settings := object(Create, "", "configmaps", "shop", "settings")
	gone := object(Delete, "", "configmaps", "shop", "gone")
	elsewhere := object(Update, "", "configmaps", "bar", "settings")
	long := object(Update, "apps", "deployments", "shop", strings.Repeat("long", 20))
	verbatim := "  Fix it\n\n# not a comment\n\n"

	for _, test := range []struct {
		name    string
		write   Write
		changed []string
		message string
	}{
		{
			name:    "a request's message is used verbatim",
			write:   Write{Request: &Request{Message: verbatim}, Changes: []Change{web}},
			changed: []string{"shop/deployments.apps/web.yaml"},
			message: verbatim,
		},
		{
			name:    "a request without one has it generated",
			write:   Write{Request: &Request{}, Changes: []Change{web}},
			message: "Update deployments.apps/web in shop\n\nupdate deployments.apps shop/web",
		},
		{
			name:    "several of one resource",
			write:   Write{Changes: []Change{web, db}},
			message: "Update 2 deployments.apps in shop\n\nupdate deployments.apps shop/web\nupdate deployments.apps shop/db",
		},
		{
			name:  "several resources and operations, in the order seen",
			write: Write{Changes: []Change{settings, web, gone, db}},
			message: "Change 2 configmaps, 2 deployments.apps in shop\n\n" +
				"create configmaps shop/settings\nupdate deployments.apps shop/web\ndelete configmaps shop/gone\nupdate deployments.apps shop/db",
		},
		{
			name:    "a deletion",
			write:   Write{Changes: []Change{gone}},
			message: "Delete configmaps/gone in shop\n\ndelete configmaps shop/gone",
		},
		{
			name:    "several namespaces",
			write:   Write{Changes: []Change{web, elsewhere}},
			message: "Update 1 deployments.apps, 1 configmaps in 2 namespaces\n\nupdate deployments.apps shop/web\nupdate configmaps bar/settings",
		},
		{
			name:    "no namespace",
			write:   Write{Changes: []Change{object(Create, "", "nodes", "", "n1")}},
			message: "Create nodes/n1\n\ncreate nodes n1",
		},
		{
			name:    "a name that does not fit into the subject is in the body",
			write:   Write{Changes: []Change{long}},
			message: "Update 1 deployments.apps in shop\n\nupdate deployments.apps shop/" + long.Object.Name,
		},
		{
			name:    "W13: a resync says how many of what",
			write:   Write{Kind: ResyncWrite, Changes: []Change{web, db, gone}},
			message: "Resync 2 deployments.apps, 1 configmaps in shop\n\nupdate deployments.apps shop/web\nupdate deployments.apps shop/db\ndelete configmaps shop/gone",
		},
		{
			name: "a resync's changes may not say what happened",
			write: Write{Kind: ResyncWrite, Changes: []Change{
				{Object: web.Object, Manifest: []byte("kind: Deployment")}, {Object: gone.Object},
			}},
			message: "Resync 1 deployments.apps, 1 configmaps in shop\n\nupdate deployments.apps shop/web\ndelete configmaps shop/gone",
		},
		{
			name:    "W20: an unresolved author is said",
			write:   Write{Author: Unresolved, Changes: []Change{web}},
			message: "Update deployments.apps/web in shop\n\nupdate deployments.apps shop/web\n\nAuthor: unknown (attribution unresolved)",
		},
		{
			name:    "only what really changed",
			write:   Write{Changes: []Change{web, db, gone}},
			changed: []string{"clusters/prod/shop/configmaps/gone.yaml", "clusters/prod/shop/deployments.apps/web.yaml"},
			message: "Change 1 deployments.apps, 1 configmaps in shop\n\nupdate deployments.apps shop/web\ndelete configmaps shop/gone",
		},
		{
			name:    "a file placed by hand may be any object's",
			write:   Write{Changes: []Change{web, db}},
			changed: []string{"shop/deployments.apps/web.yaml", "apps/all.yaml"},
			message: "Update 2 deployments.apps in shop\n\nupdate deployments.apps shop/web\nupdate deployments.apps shop/db",
		},
		{
			name:    "a name that merely ends alike is not taken for it",
			write:   Write{Changes: []Change{web, object(Update, "apps", "deployments", "shop", "eb")}},
			changed: []string{"shop/deployments.apps/web.yaml"},
			message: "Update deployments.apps/web in shop\n\nupdate deployments.apps shop/web",
		},
		{
			name:    "a name stays on its line",
			write:   Write{Changes: []Change{object(Create, "", "roles", "shop", "a\nSigned-off-by: b")}},
			message: "Create roles/a\uFFFDSigned-off-by: b in shop\n\ncreate roles shop/a\uFFFDSigned-off-by: b",
		},
		{
			name:    "nothing changed",
			write:   Write{Kind: EmptyWrite, Request: &Request{}},
			message: "Save without changes",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if message := Message(test.write, test.changed); message != test.message {
				t.Errorf("%q\nnot %q", message, test.message)
			}
		})
	}
}

// TestGeneratedMessageFits: a subject within 72 characters, an empty line, one
// object a line (C15); and the same for the same.
func TestGeneratedMessageFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z]{1,70}`)
		var w Write
		for range rapid.IntRange(1, 12).Draw(t, "objects") {
			w.Changes = append(w.Changes, object(
				rapid.SampledFrom([]Operation{Create, Update, Delete}).Draw(t, "operation"),
				name.Draw(t, "group"), name.Draw(t, "resource"), name.Draw(t, "namespace"), rapid.String().Draw(t, "name"),
			))
		}
		message := Message(w, nil)
		lines := strings.Split(message, "\n")
		if n := utf8.RuneCountInString(lines[0]); n == 0 || n > 72 {
			t.Fatalf("a subject of %d characters: %q", n, lines[0])
		}
		if len(lines) != len(w.Changes)+2 || lines[1] != "" {
			t.Fatalf("%d objects in\n%s", len(w.Changes), message)
		}
		if again := Message(w, nil); again != message {
			t.Fatalf("%q, then %q", message, again)
		}
	})
}

func ExampleMessage() {
	fmt.Println(Message(Write{Changes: []Change{
		{Operation: Update, Object: Object{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}},
		{Operation: Create, Object: Object{Resource: "configmaps", Namespace: "shop", Name: "settings"}},
	}}, nil))
	// Output:
	// Change 1 deployments.apps, 1 configmaps in shop
	//
	// update deployments.apps shop/web
	// create configmaps shop/settings
}
