// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parse(t *testing.T, source string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTestsThatRunTheSuite(t *testing.T) {
	files := []*ast.File{parse(t, `package x
import storagetesting "k8s.io/apiserver/pkg/storage/testing"

func TestCall(t *testing.T)   { storagetesting.RunTestGet(ctx, t, s) }
func TestValue(t *testing.T)  { for _, f := range []any{storagetesting.RunTestWatch} { _ = f } }
func TestThrough(t *testing.T) { t.Run("x", func(t *testing.T) { first(t) }) }
func first(t *testing.T)      { second(t) }
func second(t *testing.T)     { first(t); storagetesting.RunTestList(ctx, t, s) }
func TestMain(m *testing.M)   { storagetesting.RunTestCreate(ctx, t, s) }
func BenchmarkX(b *testing.B) { storagetesting.RunBenchmarkStoreList(ctx, b, s) }
func TestHook(t *testing.T)   { storagetesting.NewKVRecorder(nil, nil) }
func TestMethod(t *testing.T) { t.second() }
`), parse(t, `package x
import "k8s.io/apiserver/pkg/storage/testing"
import other "testing"

func TestUnnamed(t *other.T) { testing.RunTestKeySchema(ctx, t, s) }
`), parse(t, `package x
import storagetesting "example.dev/another/testing"

func TestAnother(t *testing.T) { storagetesting.RunTestGet(ctx, t, s) }
`)}
	s := sources{tests: testsIn(files)}
	suite, own := s.split()
	if diff := cmp.Diff([]string{"TestCall", "TestThrough", "TestUnnamed", "TestValue"}, suite); diff != "" {
		t.Errorf("tests that run the suite (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"TestAnother", "TestHook", "TestMethod"}, own); diff != "" {
		t.Errorf("other tests (-want +got):\n%s", diff)
	}
	want := []string{"RunTestGet", "RunTestKeySchema", "RunTestList", "RunTestWatch"}
	if diff := cmp.Diff(want, sorted(s.functions())); diff != "" {
		t.Errorf("functions of the suite (-want +got):\n%s", diff)
	}
}

func TestAnyOfSelectsExactly(t *testing.T) {
	selected := regexp.MustCompile(anyOf([]string{"TestGet", "TestList"}))
	for name, want := range map[string]bool{"TestGet": true, "TestList": true, "TestGetList": false, "TestLists": false} {
		if got := selected.MatchString(name); got != want {
			t.Errorf("%s: selected %v, want %v", name, got, want)
		}
	}
}
