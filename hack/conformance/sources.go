// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// sources is what a package's test files say.
type sources struct {
	version string // of the module
	// tests are the package's tests, and which functions of the suite each one
	// mentions, itself or through functions of its package.
	tests map[string]map[string]bool
}

func loadSources(ctx context.Context, pkg string) (sources, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=Dir,TestGoFiles,XTestGoFiles,Module", pkg)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return sources{}, fmt.Errorf("finding the sources of %s: %w: %s", pkg, err, complaint.Bytes())
	}
	var listed struct {
		Dir                       string
		TestGoFiles, XTestGoFiles []string
		Module                    struct{ Version string }
	}
	if err := json.Unmarshal(out, &listed); err != nil {
		return sources{}, fmt.Errorf("reading what go list says of %s: %w", pkg, err)
	}
	var files []*ast.File
	for _, name := range append(listed.TestGoFiles, listed.XTestGoFiles...) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(listed.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return sources{}, err
		}
		files = append(files, file)
	}
	return sources{version: listed.Module.Version, tests: testsIn(files)}, nil
}

// testsIn follows each test through the functions it mentions.
func testsIn(files []*ast.File) map[string]map[string]bool {
	suite, mentions := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, file := range files {
		imported := importName(file, suitePackage)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Body == nil {
				continue
			}
			name := f.Name.Name
			suite[name], mentions[name] = map[string]bool{}, map[string]bool{}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					mentions[name][id.Name] = true
				}
				selector, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := selector.X.(*ast.Ident)
				if ok && x.Name == imported && strings.HasPrefix(selector.Sel.Name, "Run") {
					suite[name][selector.Sel.Name] = true
				}
				return !ok // what another package or a value calls so is no function of ours
			})
		}
	}
	tests := map[string]map[string]bool{}
	for name := range suite {
		if isTest(name) {
			tests[name] = map[string]bool{}
			follow(name, suite, mentions, tests[name], map[string]bool{})
		}
	}
	return tests
}

func follow(name string, suite, mentions map[string]map[string]bool, into, seen map[string]bool) {
	if seen[name] {
		return
	}
	seen[name] = true
	for f := range suite[name] {
		into[f] = true
	}
	for other := range mentions[name] {
		follow(other, suite, mentions, into, seen)
	}
}

func isTest(name string) bool { return strings.HasPrefix(name, "Test") && name != "TestMain" }

func importName(file *ast.File, pkg string) string {
	for _, spec := range file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// split tells the tests that run the suite from those of the package's own parts.
func (s sources) split() (suite, own []string) {
	with, without := map[string]bool{}, map[string]bool{}
	for name, functions := range s.tests {
		if len(functions) > 0 {
			with[name] = true
		} else {
			without[name] = true
		}
	}
	return sorted(with), sorted(without)
}

// functions are those of the suite that any test runs.
func (s sources) functions() map[string]bool {
	all := map[string]bool{}
	for _, functions := range s.tests {
		for f := range functions {
			all[f] = true
		}
	}
	return all
}

func anyOf(tests []string) string {
	quoted := make([]string, len(tests))
	for i, name := range tests {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}
