// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"testing"
)

func filesOf(t *testing.T, fsys fs.FS) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestGoodLinks(t *testing.T) {
	fsys := os.DirFS("testdata/good")
	checked, broken, err := check(fsys, filesOf(t, fsys))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
	if want := 11; checked != want {
		t.Errorf("followed %d links, want %d", checked, want)
	}
}

func TestBrokenLinksAreNamedWithFileAndLine(t *testing.T) {
	fsys := os.DirFS("testdata/bad")
	_, broken, err := check(fsys, filesOf(t, fsys))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"gone.md": 2, "README.md#nope": 3, "#top-1": 4, "gone.png": 5,
		"../../outside.md": 6, "bin/tool": 7, "#code": 12, "gone-too.md": 13,
	}
	for _, b := range broken {
		line, ok := want[b.Destination]
		if !ok || b.Line != line || b.File != "README.md" {
			t.Errorf("unexpected: %s", b)
		}
		delete(want, b.Destination)
	}
	for destination := range want {
		t.Errorf("not found: %s", destination)
	}
}
