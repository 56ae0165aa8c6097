// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
)

// The cases of testdata/edit: before.yaml is the file in Git, absent for a new one,
// live.json what the API serves, after.yaml the right bytes; where that is absent
// the file has to be refused.
func TestEditCases(t *testing.T) {
	dirs, err := filepath.Glob("testdata/edit/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			file := func(name string) []byte {
				content, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
				return content
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(file("live.json")); err != nil {
				t.Fatal(err)
			}
			intent, err := Render(u)
			if err != nil {
				t.Fatal(err)
			}
			before, after := file("before.yaml"), file("after.yaml")
			got, err := Edit(before, intent)
			switch refused := (*RefusedError)(nil); {
			case after == nil:
				if !errors.As(err, &refused) || refused.Line == 0 {
					t.Errorf("want a refusal with its line, got %v and\n%s", err, got)
				}
				return
			case err != nil:
				t.Fatal(err)
			case before == nil:
				wantSigs, wantV3 := readBoth(t, after)
				gotSigs, gotV3 := readBoth(t, got)
				if diff := cmp.Diff(wantSigs, gotSigs) + cmp.Diff(wantV3, gotV3); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			default:
				if diff := cmp.Diff(string(after), string(got)); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
			if again, err := Edit(got, intent); err != nil || string(again) != string(got) {
				t.Errorf("the second time changes something: %v\n%s", err, again)
			}
		})
	}
}

// C14: what a file cannot be made to say without guessing is refused, by reason and
// line.
func TestEditRefuses(t *testing.T) {
	intent, err := Render(configMap(map[string]any{"level": "debug"}))
	if err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop}\n"
	for name, c := range map[string]struct {
		file   string
		reason Reason
		line   int
	}{
		"another object":   {"# x\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: d, namespace: shop}\n", OtherObject, 2},
		"other namespace":  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: lab}\n", OtherObject, 1},
		"twice without":    {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", SeveralOwners, 5},
		"encrypted":        {head + "data: {level: 'ENC[AES256_GCM,data:x]'}\nsops:\n  mac: x\n", Encrypted, 6},
		"duplicate key":    {head + "data:\n  a: b\n  level: info\n  level: warn\n", DuplicateKey, 7},
		"second document":  {"a: b\n---\n" + head + "data: {x: 1, x: 2}\n", DuplicateKey, 6},
		"template":         {head + "data:\n  level: {{ .Values.level }}\n", Template, 5},
		"template actions": {head + "{{- if .Values.x }}\ndata:\n  level: info\n{{- end }}\n", Template, 4},
		"twice":            {head + "data: {level: info}\n---\n" + head, SeveralOwners, 6},
		"not YAML":         {head + "data: [\n", Unreadable, 1},
		"shared value":     {head + "data: &d\n  level: info\nother: *d\n", NotEditable, 4},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Edit([]byte(c.file), intent)
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("want a refusal, got %v and\n%s", err, got)
			}
			if refused.Reason != c.reason || refused.Line != c.line {
				t.Errorf("got %s on line %d: %v", refused.Reason, refused.Line, err)
			}
		})
	}
}

// C14, neighbours of the public cases: each pair is a file and what it becomes.
func TestEditInPlace(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop} # who\n"
	for name, c := range map[string]struct {
		data          map[string]any
		before, after string
	}{
		"literal block": {map[string]any{"t": "a\nc\n", "u": "x"},
			head + "data:\n  t: |\n    a\n    b\n  # next\n  u: x\n", head + "data:\n  t: |\n    a\n    c\n  # next\n  u: x\n"},
		"block at the end without line end": {map[string]any{"t": "a\nc"},
			head + "data:\n  t: |-\n    a\n    b", head + "data:\n  t: |-\n    a\n    c\n"},
		"single quotes": {map[string]any{"t": "it's"}, head + "data: {t: 'it'}\n", head + "data: {t: 'it''s'}\n"},
		"plain over two lines": {map[string]any{"t": "new", "u": "x"},
			head + "data:\n  t: one\n    two\n  u: x\n", head + "data:\n  t: new\n  u: x\n"},
		"comma in brackets":   {map[string]any{"t": "a,b"}, head + "data: {t: a}\n", head + "data: {t: \"a,b\"}\n"},
		"added key":           {map[string]any{"a": "1", "b": "x"}, head + "data:\n  b: x # last\n", head + "data:\n  b: x # last\n  a: \"1\"\n"},
		"added in brackets":   {map[string]any{"a": "z", "b": "x"}, head + "data: { b: x }\n", head + "data: { b: x, a: z }\n"},
		"removed key":         {map[string]any{"b": "x"}, head + "data:\n  # about a\n  a: z\n  # about b\n  b: x\n", head + "data:\n  # about b\n  b: x\n"},
		"removed in brackets": {map[string]any{"b": "x"}, head + "data: {a: z, b: x}\n", head + "data: {b: x}\n"},
		"filled empty map":    {map[string]any{"a": "z"}, head + "data: {} # none\n", head + "data:\n  a: z # none\n"},
		"emptied map":         {map[string]any{}, head + "data:\n  a: z\n", head + "data: {}\n"},
		"no line end":         {map[string]any{"a": "z", "b": "x"}, head + "data:\n  b: x", head + "data:\n  b: x\n  a: z"},
		"four spaces":         {map[string]any{"a": "z"}, head + "data:\n    a: x   # c\n", head + "data:\n    a: z   # c\n"},
		"word to string":      {map[string]any{"a": "yes"}, head + "data:\n  a: \"no\"\n", head + "data:\n  a: \"yes\"\n"},
		"quoted key":          {map[string]any{"y": "b"}, head + "data:\n  \"y\": a\n", head + "data:\n  \"y\": b\n"},
		"wide characters":     {map[string]any{"é👋": "b", "z": "c"}, head + "data: {é👋: a, z: c}\n", head + "data: {é👋: b, z: c}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			intent, err := Render(configMap(c.data))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Edit([]byte(c.before), intent)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.after, string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// leaves returns the paths to the strings of a value.
func leaves(v any, path []any) [][]any {
	var found [][]any
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			found = append(found, leaves(v[key], append(slices.Clip(path), key))...)
		}
	case []any:
		for i := range v {
			found = append(found, leaves(v[i], append(slices.Clip(path), i))...)
		}
	case string:
		found = append(found, path)
	}
	return found
}

// set replaces the value at a path.
func set(v any, path []any, value any) any {
	if len(path) == 0 {
		return value
	}
	switch key := path[0].(type) {
	case string:
		m := v.(map[string]any)
		m[key] = set(m[key], path[1:], value)
	case int:
		l := v.([]any)
		l[key] = set(l[key], path[1:], value)
	}
	return v
}

// C14: in a file of a foreign style, changed strings change their own lines only, and
// all readers see the new values.
func TestEditTouchesChangedValues(t *testing.T) {
	word := rapid.OneOf(rapid.SampledFrom([]string{"a", "yes", "0123", "=", "a: b", "it's", "👋", "a #b", "two words"}), rapid.StringMatching(`[a-z]{1,8}`))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return word.AsAny()
		}
		return rapid.OneOf(word.AsAny(),
			rapid.Custom(func(t *rapid.T) any { return rapid.SliceOfN(value(depth-1), 1, 3).Draw(t, "list") }),
			rapid.Custom(func(t *rapid.T) any {
				return rapid.MapOfN(rapid.StringMatching(`[a-m]{2,4}`), value(depth-1), 1, 3).Draw(t, "map")
			}))
	}
	rapid.Check(t, func(t *rapid.T) {
		object := map[string]any{
			"apiVersion": "example.org/v1", "kind": "Thing", "metadata": map[string]any{"name": "t"},
			"spec": rapid.MapOfN(rapid.StringMatching(`[a-m]{2,4}`), value(3), 1, 4).Draw(t, "spec"),
		}
		before := foreign(t, object, rapid.IntRange(2, 6).Draw(t, "indent"), rapid.Bool().Draw(t, "flow"))
		paths := leaves(object["spec"], []any{"spec"})
		edits := rapid.IntRange(1, 3).Draw(t, "edits")
		for range edits {
			set(object, rapid.SampledFrom(paths).Draw(t, "path"), word.Draw(t, "new"))
		}
		intent, err := encode(object)
		if err != nil {
			t.Fatal(err)
		}
		after, err := Edit(before, intent)
		if why := (*RefusedError)(nil); edits > 1 && errors.As(err, &why) && why.Reason == NotEditable {
			return // elements that trade places in a list that shares its line with a dash
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, before)
		}
		sigs, v3 := readBoth(t, after)
		if diff := cmp.Diff(served(t, object), sigs) + cmp.Diff(served(t, object), v3); diff != "" {
			t.Fatalf("%s\n%s", diff, after)
		}
		old, new := strings.Split(string(before), "\n"), strings.Split(string(after), "\n")
		if len(old) != len(new) {
			t.Fatalf("lines came or went:\n%s\n%s", before, after)
		}
		changed := 0
		for i := range old {
			if old[i] != new[i] {
				changed++
			}
		}
		if changed > edits {
			t.Fatalf("%d lines changed:\n%s\n%s", changed, before, after)
		}
	})
}

// foreign writes an object as another tool would, with a comment on every entry.
func foreign(t *rapid.T, object map[string]any, indent int, flow bool) []byte {
	var node yamlv3.Node
	if err := node.Encode(object); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(node.Content); i += 2 {
		node.Content[i].HeadComment = "# about " + node.Content[i].Value
		if flow && node.Content[i+1].Kind != yamlv3.ScalarNode {
			node.Content[i+1].Style |= yamlv3.FlowStyle
		}
	}
	var out bytes.Buffer
	encoder := yamlv3.NewEncoder(&out)
	encoder.SetIndent(indent)
	if err := encoder.Encode(&node); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// C14: whatever changes, the file is right afterwards, or it is refused; and a
// second time changes nothing.
func TestEditAnything(t *testing.T) {
	refused, edited := map[string]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		thing := func(t *rapid.T, label string) map[string]any {
			return map[string]any{
				"apiVersion": "example.org/v1", "kind": "Thing", "metadata": map[string]any{"name": "t"},
				"spec": rapid.MapOfN(rapid.StringMatching(`[a-d]`), genValue(2), 1, 4).Draw(t, label),
			}
		}
		// Not all that the other tool writes is what it was given.
		writable := func(object map[string]any) bool {
			text, err := yamlv3.Marshal(object)
			if err != nil {
				return false
			}
			again, err := read(text)
			return err == nil && reflect.DeepEqual(again, served(t, object))
		}
		have, want := rapid.Custom(func(t *rapid.T) map[string]any { return thing(t, "have") }).Filter(writable).Draw(t, "have"), thing(t, "want")
		before := foreign(t, have, rapid.IntRange(2, 6).Draw(t, "indent"), rapid.Bool().Draw(t, "flow"))
		intent, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		after, err := Edit(before, intent)
		if why := (*RefusedError)(nil); errors.As(err, &why) {
			refused[string(why.Reason)+": "+why.Detail]++
			return
		} else if err != nil {
			t.Fatal(err)
		}
		edited++
		sigs, _ := readBoth(t, after)
		if diff := cmp.Diff(served(t, want), sigs); diff != "" {
			t.Fatalf("%s\n%s", diff, after)
		}
		if again, err := Edit(after, intent); err != nil || !bytes.Equal(again, after) {
			t.Fatalf("the second time changes something: %v\n%s\n%s", err, after, again)
		}
	})
	t.Logf("edited %d, refused %v", edited, refused)
}
