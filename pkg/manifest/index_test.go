// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// C13: what a file holds, wherever in it, and what is wrong with it.
func TestIndex(t *testing.T) {
	web := func(e Entry) Entry {
		e.Group, e.Kind, e.Name = "apps", "Deployment", "web"
		return e
	}
	const head = "apiVersion: apps/v1\nkind: Deployment\n"
	for name, c := range map[string]struct {
		file    string
		entries []Entry
		problem Reason
		line    int
	}{
		"one document":          {head + "metadata: {name: web, namespace: shop}\n", []Entry{web(Entry{Namespace: "shop", Line: 1})}, "", 0},
		"no namespace":          {"# by hand\n" + head + "metadata:\n  name: web\n", []Entry{web(Entry{Line: 2})}, "", 0},
		"several, some foreign": {"a: b\n---\n\n---\n# x\n" + head + "metadata: {name: web}\n--- # y\nkind: Service\napiVersion: v1\nmetadata: {name: s}\n---\n", []Entry{web(Entry{Line: 6, Document: 1}), {Kind: "Service", Name: "s", Line: 10, Document: 2}}, "", 0},
		"a List":                {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: s}}\n- apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: web}\n", []Entry{{Kind: "Service", Name: "s", Line: 4, Item: 1}, web(Entry{Line: 5, Item: 2})}, "", 0},
		"JSON":                  {"{\n\t\"apiVersion\": \"apps/v1\", \"kind\": \"Deployment\",\n\t\"metadata\": {\"name\": \"web\"}}\n", []Entry{web(Entry{Line: 1})}, "", 0},
		"byte order mark, CRLF": {"\ufeff" + strings.ReplaceAll(head+"metadata: {name: web}\n", "\n", "\r\n"), []Entry{web(Entry{Line: 1})}, "", 0},
		"an alias":              {head + "metadata: &m {name: web, namespace: shop}\nspec: {template: {metadata: *m}}\n", []Entry{web(Entry{Namespace: "shop", Line: 1})}, "", 0},
		"a merged map":          {"x: &m {namespace: shop}\n" + head + "metadata: {<<: *m, name: web}\n", []Entry{web(Entry{Namespace: "shop", Line: 1})}, "", 0},
		"a map within itself":   {"x: &m {<<: *m}\n" + head + "metadata: *m\n", nil, "", 0},
		"a kustomization":       {"resources: [a.yaml]\nnamespace: shop\n", nil, "", 0},
		"values of a chart":     {"name: web\nkind: x\nkind: y\n", nil, "", 0},
		"no YAML at all":        {"\x7fELF\x00", nil, Unreadable, 1},
		"empty":                 {"", nil, "", 0},
		"comments":              {"# nothing\n---\n", nil, "", 0},
		"duplicate key":         {head + "metadata: {name: web}\nspec: {}\nspec: {a: b}\n", []Entry{web(Entry{Line: 1})}, DuplicateKey, 5},
		"encrypted":             {head + "metadata: {name: web}\nsops: {mac: x}\n", []Entry{web(Entry{Line: 1})}, Encrypted, 4},

		// What cannot be read still shows a name; where it does not, nothing is made up.
		"template":                    {head + "metadata:\n  name: web # w\n  labels:\n    name: other\n  namespace: 'shop'\nspec:\n  {{- with .Values }}\n", []Entry{web(Entry{Namespace: "shop", Line: 1, Unsound: true})}, Template, 9},
		"template of a name":          {head + "metadata:\n  name: {{ .Release.Name }}\n", nil, Template, 4},
		"broken, before a sound one":  {"a: [\n---\n" + head + "metadata: {name: web}\n", []Entry{web(Entry{Line: 3, Document: 1})}, Unreadable, 1},
		"broken, after a sound one":   {head + "metadata: {name: web}\n---\n" + head + "metadata:\n  name: api\n\tx\n", []Entry{web(Entry{Line: 1}), {Group: "apps", Kind: "Deployment", Name: "api", Line: 5, Document: 1, Unsound: true}}, Unreadable, 4},
		"a template, and a sound one": {"{{ if x }}\nkind: y\n{{ end }}\n---\n" + head + "metadata: {name: web}\n", []Entry{web(Entry{Line: 5, Document: 1})}, Template, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := Index([]byte(c.file))
			if diff := cmp.Diff(c.entries, got.Entries); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.Problem == nil && c.problem != "" || got.Problem != nil && (got.Problem.Reason != c.problem || got.Problem.Line != c.line) {
				t.Errorf("got problem %v, want %s on line %d", got.Problem, c.problem, c.line)
			}
			asJSON, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			var again File
			if err := json.Unmarshal(asJSON, &again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("kept as JSON, it is another: %s", diff)
			}
		})
	}
}

func TestIsManifest(t *testing.T) {
	for name, want := range map[string]bool{"a.yaml": true, "d/a.yml": true, "a.json": true, "a.yaml.tpl": false, "README.md": false, "yaml": false} {
		if got := IsManifest(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The index finds what Render wrote, whatever is in it, and no bytes stop it.
func TestIndexFindsWhatIsRendered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := map[string]any{
			"apiVersion": "example.org/v1", "kind": "Thing",
			"metadata": map[string]any{"name": "t", "namespace": "n", "labels": genValue(2).Draw(t, "labels")},
			"spec":     genValue(3).Draw(t, "spec"),
		}
		content, err := encode(object)
		if err != nil {
			t.Fatal(err)
		}
		want := File{Entries: []Entry{{Group: "example.org", Kind: "Thing", Namespace: "n", Name: "t", Line: 1}}}
		if diff := cmp.Diff(want, Index(content)); diff != "" {
			t.Fatalf("%s\n%s", diff, content)
		}
		Index(content[:rapid.IntRange(0, len(content)).Draw(t, "cut")])
		Index([]byte(genString().Draw(t, "noise")))
	})
}
