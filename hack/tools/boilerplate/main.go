// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command boilerplate checks that every Go file begins with the copyright and
// licence lines of hack/boilerplate.go.txt.
//
//	boilerplate [-root DIR] [-write]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// generated is the line by which Go knows generated files. Generators may put
// build constraints before the header.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func main() {
	root := flag.String("root", ".", "the checkout")
	write := flag.Bool("write", false, "add the header where it is missing")
	flag.Parse()
	if err := run(*root, *write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string, write bool) error {
	header, err := os.ReadFile(filepath.Join(root, "hack", "boilerplate.go.txt"))
	if err != nil {
		return err
	}
	header = append(bytes.TrimSpace(header), '\n')
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.go")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	missing := 0
	for name := range bytes.SplitSeq(bytes.TrimRight(out, "\x00"), []byte{0}) {
		path := filepath.Join(root, string(name))
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, but not yet from the index
		}
		if err != nil {
			return err
		}
		if hasHeader(content, header) {
			continue
		}
		if write {
			if err := os.WriteFile(path, bytes.Join([][]byte{header, content}, []byte("\n")), 0o644); err != nil {
				return err
			}
			continue
		}
		missing++
		fmt.Fprintf(os.Stderr, "%s lacks the header\n", name)
	}
	if missing > 0 {
		return errors.New("boilerplate: run make update-boilerplate")
	}
	return nil
}

func hasHeader(content, header []byte) bool {
	if rest, ok := bytes.CutPrefix(content, header); ok {
		return bytes.HasPrefix(rest, []byte("\n"))
	}
	preamble, _, _ := bytes.Cut(content, []byte("\npackage "))
	return generated.Match(content) && bytes.Contains(preamble, header)
}
