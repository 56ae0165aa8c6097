// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command links checks that the relative links and anchors in all Markdown
// files of a checkout point to something that is in it. Links to other hosts
// are not followed.
//
//	links [-root DIR]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
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
	files, err := checkedIn(root)
	if err != nil {
		return err
	}
	checked, broken, err := check(os.DirFS(root), files)
	if err != nil {
		return err
	}
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, b)
	}
	if len(broken) > 0 {
		return fmt.Errorf("links: %d broken", len(broken))
	}
	fmt.Printf("links: %d relative links point to something\n", checked)
	return nil
}

// checkedIn lists the files that are, or could be, committed: a link to a
// built file is broken for everyone else.
func checkedIn(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var files []string
	for name := range bytes.SplitSeq(out, []byte{0}) {
		_, err := os.Lstat(root + "/" + string(name))
		if len(name) > 0 && !errors.Is(err, os.ErrNotExist) {
			files = append(files, string(name))
		}
	}
	return files, nil
}
