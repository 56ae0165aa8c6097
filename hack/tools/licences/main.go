// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command licences checks that every module linked into the product has a
// licence that the product may use, and that docs/dependencies.md says so.
//
//	licences [-root DIR] [-write] [PACKAGE PATTERN...]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

const document = "docs/dependencies.md"

func main() {
	root := flag.String("root", ".", "the product's module")
	write := flag.Bool("write", false, "bring "+document+" up to date instead of checking it")
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./cmd/..."}
	}
	if err := run(*root, *write, patterns); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string, write bool, patterns []string) error {
	modules, err := linkedModules(root, patterns)
	if err != nil {
		return err
	}
	if len(modules) == 0 {
		return fmt.Errorf("no package matches %v: nothing was checked", patterns)
	}
	var refused []error
	for i := range modules {
		if err := modules[i].classify(); err != nil {
			refused = append(refused, err)
		}
	}
	if len(refused) > 0 {
		return errors.Join(refused...)
	}
	path := filepath.Join(root, document)
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	want, err := splice(have, table(modules))
	if err != nil {
		return err
	}
	switch {
	case string(have) == string(want):
	case write:
		if err := os.WriteFile(path, want, 0o644); err != nil {
			return err
		}
	default:
		return errors.New(document + " does not list what is linked now: run make update-licences")
	}
	fmt.Printf("licences: %d linked modules, all allowed\n", len(modules))
	return nil
}
