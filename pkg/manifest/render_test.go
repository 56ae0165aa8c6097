// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

// readBoth returns the values of a document as two readers see them. What kustomize
// reads has to be what kubectl does.
func readBoth(t interface{ Fatalf(string, ...any) }, document []byte) (sigs, v3 map[string]any) {
	asJSON, err := yaml.YAMLToJSON(document)
	if err != nil {
		t.Fatalf("sigs.k8s.io/yaml cannot read it: %v\n%s", err, document)
	}
	if err := utiljson.Unmarshal(asJSON, &sigs); err != nil {
		t.Fatalf("%v", err)
	}
	var any3 any
	if err := yamlv3.Unmarshal(document, &any3); err != nil {
		t.Fatalf("go.yaml.in/yaml/v3 cannot read it: %v\n%s", err, document)
	}
	asJSON, err = json.Marshal(any3)
	if err != nil {
		t.Fatalf("go.yaml.in/yaml/v3 reads keys that are no strings: %v\n%s", err, document)
	}
	if err := utiljson.Unmarshal(asJSON, &v3); err != nil {
		t.Fatalf("%v", err)
	}
	node, err := kyaml.Parse(string(document))
	if err != nil {
		t.Fatalf("kyaml cannot read it: %v\n%s", err, document)
	}
	if asJSON, err = node.MarshalJSON(); err != nil {
		t.Fatalf("kyaml: %v\n%s", err, document)
	}
	var third map[string]any
	if err := utiljson.Unmarshal(asJSON, &third); err != nil {
		t.Fatalf("%v", err)
	}
	if diff := cmp.Diff(sigs, third); diff != "" {
		t.Fatalf("kyaml reads something else: %s\n%s", diff, document)
	}
	return sigs, v3
}

// served returns the object as a JSON reader of the API would have it.
func served(t interface{ Fatalf(string, ...any) }, object map[string]any) map[string]any {
	asJSON, err := json.Marshal(object)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(asJSON, &out); err != nil {
		t.Fatalf("%v", err)
	}
	return out
}

func configMap(data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "c", "namespace": "shop"},
		"data":     data,
	}}
}

// C2: one canonical form, readable to people.
func TestRenderForm(t *testing.T) {
	u := configMap(map[string]any{
		"plain": "nginx:1.25", "url": "https://example.org/a?b=c#d", "size": "128Mi", "emoji": "👋 café",
		"number": "0123", "word": "yes", "spaces": " a", "colon": "a: b", "comment": "a #b", "end": "a:",
		"merge": "<<", "equals": "=", "control": "a\x7f\u0085\u2028b", "empty": "", "dash": "-", "tab": "a\tb",
		"script": "#!/bin/sh\n\techo hi  \n\nexit 0\n", "cut": "a\nb", "more": "a\n\n\n", "indented": "  a\nb\n",
		"blank": "a\n  \nb\n", "crlf": "a\r\nb\r\n", "newline": "\n",
		"Y": "key", "1": "key", "with space": "key", "a: b": "key",
	})
	u.Object["list"] = []any{"a", map[string]any{"b": int64(1), "c": []any{int64(2), []any{}}}, []any{"x", "y\nz\n"}, map[string]any{}, nil}
	u.Object["immutable"] = true
	want := `apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  namespace: shop
data:
  "1": key
  "Y": key
  "a: b": key
  blank: "a\n  \nb\n"
  colon: "a: b"
  comment: "a #b"
  control: "a\x7F\x85\u2028b"
  crlf: "a\r\nb\r\n"
  cut: |-
    a
    b
  dash: "-"
  emoji: 👋 café
  empty: ""
  end: "a:"
  equals: "="
  indented: |2
      a
    b
  merge: "<<"
  more: |+
    a


  newline: "\n"
  number: "0123"
  plain: nginx:1.25
  script: |
    #!/bin/sh
    	echo hi  

    exit 0
  size: 128Mi
  spaces: " a"
  tab: "a\tb"
  url: https://example.org/a?b=c#d
  with space: key
  word: "yes"
immutable: true
list:
- a
- b: 1
  c:
  - 2
  - []
- - x
  - |
    y
    z
- {}
- null
`
	got, err := Render(u)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	sigs, v3 := readBoth(t, got)
	if diff := cmp.Diff(served(t, u.Object), sigs); diff != "" {
		t.Errorf("sigs.k8s.io/yaml: %s", diff)
	}
	if diff := cmp.Diff(served(t, u.Object), v3); diff != "" {
		t.Errorf("go.yaml.in/yaml/v3: %s", diff)
	}
}

func TestRenderNumbers(t *testing.T) {
	for want, value := range map[string]any{
		"9223372036854775807":     int64(math.MaxInt64),
		"-9223372036854775808":    int64(math.MinInt64),
		"1":                       float64(1),
		"0":                       math.Copysign(0, -1),
		"0.1":                     0.1,
		"1.0e+21":                 1e21,
		"1.7976931348623157e+308": math.MaxFloat64,
		"5.0e-324":                math.SmallestNonzeroFloat64,
		"9007199254740992":        float64(1 << 53), "9.223372036854776e+18": float64(1 << 63),
		"123456.789": 123456.789,
	} {
		u := configMap(nil)
		u.Object["data"] = value
		got, err := Render(u)
		if err != nil {
			t.Fatal(err)
		}
		if _, line, _ := strings.Cut(string(got), "data: "); line != want+"\n" {
			t.Errorf("%v: got %q, want %q", value, line, want)
		}
	}
}

func TestRenderRefusesWhatYAMLCannotCarry(t *testing.T) {
	for name, value := range map[string]any{
		"nan": math.NaN(), "infinite": math.Inf(1), "utf8": "a\xff",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(configMap(map[string]any{"k": value}))
			if bad := (*ValueError)(nil); !errors.As(err, &bad) || bad.Path != "data.k" {
				t.Errorf("got %v, want a ValueError at data.k", err)
			}
		})
	}
}

// The words and number notations of all YAML versions, and neighbours of them.
var traps = []string{
	"", "~", "null", "Null", "yes", "No", "ON", "off", "y", "N", "true", "False", "=", "<<", "-", "?", ":", "---", "...",
	"0123", "0o17", "0x1F", "0b11", "1_000", "12:30:45", "1:2", ".5", "5.", "+1", "-1", "1e3", "1E3", "706798e8", ".inf", "-.Inf", ".NaN",
	"2001-01-01", "2001-12-14t21:59:43.10-05:00", "20230921.12345678", "08", "0.0.0.0", "10.0.0.1/8", "1.2.3",
	"1m", "100Mi", "1E", "1Ei", "0", "!tag", "&a", "*a", "%d", "@a", "`a`", "{a}", "[a]", "a, b", "'a'", "\"a\"", "# a", "a#b", "|", ">",
	"a: b", "a :b", "a:", " a", "a ", "\ta", "a\n", "\na", "a\n\nb", "a\n b\n", "  a\nb", "\n\n", "a\r\nb", "a\u0085b", "a\u2028b", "\ufeffa",
	"a\x00b", "a\x7fb", "\U0001F600", "👨‍👩‍👧", "a\u00a0b", "\u202eabc", "{{ .Values.a }}", "!!binary aGk=", "---\na: b\n", "a\n---\nb\n", "a\n...\n",
	"a\n\n", "a\n\n\n", " \n", "\t\n", "a\n\t\n", "#a\nb\n", "\ta\nb", strings.Repeat("k", 1100), strings.Repeat("a b ", 100) + "c",
}

func genString() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom(traps), rapid.String(),
		rapid.StringMatching(`[-+0-9_.:eExobTZ ]{1,12}`),
		rapid.StringOf(rapid.SampledFrom([]rune("ab \n\t#:-|>'\"\\{}[],&*!%@`~?=<0é😀\u0085\u2028\ufeff\x7f"))))
}

func genValue(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		genString().AsAny(), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Just[any](nil),
		rapid.Float64().Filter(func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }).AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	return rapid.OneOf(append(leaves,
		rapid.Custom(func(t *rapid.T) any { return rapid.SliceOfN(genValue(depth-1), 0, 4).Draw(t, "list") }),
		rapid.Custom(func(t *rapid.T) any {
			return rapid.MapOfN(genString(), genValue(depth-1), 0, 4).Draw(t, "map")
		}))...)
}

// C2: every value survives, for both readers, and the bytes are a function of the
// object.
func TestRenderReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(genString(), genValue(3), 0, 5).Draw(t, "object")
		object["apiVersion"], object["kind"] = "example.org/v1", "Thing"
		delete(object, "status")
		delete(object, "metadata")
		u := &unstructured.Unstructured{Object: object}
		want := served(t, intent(u))
		first, err := Render(u)
		if err != nil {
			t.Fatal(err)
		}
		sigs, v3 := readBoth(t, first)
		if diff := cmp.Diff(want, sigs); diff != "" {
			t.Fatalf("sigs.k8s.io/yaml: %s\n%s", diff, first)
		}
		if diff := cmp.Diff(want, v3); diff != "" {
			t.Fatalf("go.yaml.in/yaml/v3: %s\n%s", diff, first)
		}
		again, err := Render(&unstructured.Unstructured{Object: served(t, object)})
		if err != nil || string(again) != string(first) {
			t.Fatalf("rendered twice, the bytes differ (%v):\n%s\n%s", err, first, again)
		}
		if out, err := Edit(first, first); err != nil || string(out) != string(first) {
			t.Fatalf("edit of what is already there: %v\n%s", err, out)
		}
	})
}
