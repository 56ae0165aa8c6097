// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sleep checks that tests call time.Sleep only in files that use
// testing/synctest, in whose bubbles it advances a clock instead of waiting. A
// linter for single calls cannot tell the two apart.
//
//	sleep [-root DIR]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the checkout")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string) error {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*_test.go")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	found := 0
	for name := range bytes.SplitSeq(bytes.TrimRight(out, "\x00"), []byte{0}) {
		source, err := os.ReadFile(filepath.Join(root, string(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, but not yet from the index
		}
		if err != nil {
			return err
		}
		sleeps, err := sleeps(string(name), source)
		if err != nil {
			return err
		}
		for _, at := range sleeps {
			fmt.Fprintf(os.Stderr, "%s: time.Sleep outside synctest\n", at)
		}
		found += len(sleeps)
	}
	if found > 0 {
		return errors.New("tests do not sleep: wait for what is meant, or use testing/synctest")
	}
	return nil
}

// sleeps finds the uses of time.Sleep in a file that does not use synctest.
func sleeps(name string, source []byte) ([]token.Position, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []token.Position
	bubble := false
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := selector.X.(*ast.Ident)
		switch {
		case ok && pkg.Name == "synctest":
			bubble = true
		case ok && pkg.Name == "time" && selector.Sel.Name == "Sleep":
			found = append(found, files.Position(selector.Pos()))
		}
		return true
	})
	if bubble {
		return nil, nil
	}
	return found, nil
}
