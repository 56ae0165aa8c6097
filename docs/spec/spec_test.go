// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spec_test keeps the pages of docs/spec complete: no field and no reason
// of the API is left out.
package spec_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

const types = "../../apis/kommit/v1alpha1"

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestEachFieldIsOnItsPage(t *testing.T) {
	for page, kinds := range map[string][]any{
		"gitprovider.md":   {v1alpha1.GitProviderSpec{}, v1alpha1.GitProviderStatus{}},
		"gittarget.md":     {v1alpha1.GitTargetSpec{}, v1alpha1.GitTargetStatus{}},
		"watchrule.md":     {v1alpha1.WatchRuleSpec{}, v1alpha1.WatchRuleStatus{}},
		"commitrequest.md": {v1alpha1.CommitRequestSpec{}, v1alpha1.CommitRequestStatus{}},
		"commitwindow.md":  {v1alpha1.CommitWindowStatus{}},
	} {
		text := read(t, page)
		for _, kind := range kinds {
			for _, name := range fields(reflect.TypeOf(kind)) {
				if !regexp.MustCompile("`[^`]*\\b" + name + "\\b[^`]*`").MatchString(text) {
					t.Errorf("%s does not speak of the field %s of %T", page, name, kind)
				}
			}
		}
	}
}

// fields are the JSON names in a type of ours and in those of ours it is made of.
func fields(of reflect.Type) []string {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return fields(of.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	if of.PkgPath() != reflect.TypeFor[v1alpha1.GitTarget]().PkgPath() {
		return nil // metav1's are documented elsewhere
	}
	var names []string
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(append(names, name), fields(field.Type)...)
	}
	return names
}

func TestEachReasonIsOnAPage(t *testing.T) {
	var text strings.Builder
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text.WriteString(read(t, page))
	}
	reasons := constants(t, "Reason")
	if len(reasons) == 0 {
		t.Fatalf("no reasons in %s", types)
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if !strings.Contains(text.String(), "`"+reasons[name]+"`") {
			t.Errorf("no page speaks of %s (%s)", reasons[name], name)
		}
	}
}

// Condition types of a CommitRequest stand on its page, and what they are; so does
// the one of GitTargets.
func TestEachConditionIsOnItsPage(t *testing.T) {
	for name, value := range constants(t, "Condition") {
		page := "commitrequest.md"
		if value == v1alpha1.ConditionAttributionDegraded {
			page = "gittarget.md"
		}
		if !strings.Contains(read(t, page), "`"+value+"`") {
			t.Errorf("%s does not speak of %s (%s)", page, value, name)
		}
	}
}

// constants are the string constants of the API package whose names begin with prefix.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(types, "conditions.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			literal, ok := spec.Values[i].(*ast.BasicLit)
			if !ok || !strings.HasPrefix(name.Name, prefix) {
				continue
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			found[name.Name] = value
		}
		return true
	})
	return found
}
