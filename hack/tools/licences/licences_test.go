// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	for name, tc := range map[string]struct {
		dir, pkg string
		want     []string // nil: refused
	}{
		"one licence":                           {"mit", ".", []string{"MIT"}},
		"a package's own licence comes on top":  {"mixed", "sub", []string{"ISC", "MIT"}},
		"a licence of another package does not": {"mixed", ".", []string{"MIT"}},
		"no licence file":                       {"none", "sub", nil},
		"an unknown licence":                    {"odd", ".", nil},
		"a known licence that is not allowed":   {"gpl", ".", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", tc.dir)
			m := module{Path: "example.org/" + tc.dir, Dir: dir, packageDirs: []string{filepath.Join(dir, tc.pkg)}}
			err := m.classify()
			if tc.want == nil {
				var refused *RefusedError
				if !errors.As(err, &refused) || refused.Module != m.Path {
					t.Fatalf("classify = %v, want a *RefusedError for %s", err, m.Path)
				}
				return
			}
			if err != nil || !slices.Equal(m.licences, tc.want) {
				t.Errorf("classify = %v, %v, want %v", m.licences, err, tc.want)
			}
		})
	}
}

func TestParseGroupsPackagesAndLeavesOutOwnAndStandardOnes(t *testing.T) {
	modules, err := parse([]byte(`
{"Dir": "/go/src/fmt"}
{"Dir": "/src/us/cmd", "Module": {"Path": "us", "Main": true}}
{"Dir": "/mod/b/x", "Module": {"Path": "b", "Version": "v2.0.0", "Dir": "/mod/b", "Indirect": true}}
{"Dir": "/mod/a", "Module": {"Path": "a", "Version": "v1.0.0", "Dir": "/mod/a"}}
{"Dir": "/mod/b/y", "Module": {"Path": "b", "Version": "v2.0.0", "Dir": "/mod/b", "Indirect": true}}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) != 2 || modules[0].Path != "a" || modules[1].Path != "b" {
		t.Fatalf("modules = %+v", modules)
	}
	if !modules[0].Direct || modules[1].Direct {
		t.Error("a is direct, b is not")
	}
	if got := modules[1].packageDirs; !slices.Equal(got, []string{"/mod/b/x", "/mod/b/y"}) {
		t.Errorf("packages of b = %v", got)
	}
}

func TestSpliceKeepsWhatPeopleWrote(t *testing.T) {
	doc := "intro\n" + beginTable + "old\n" + endTable + "outro\n"
	modules := []module{{Path: "a", Version: "v1.0.0", Direct: true, licences: []string{"ISC", "MIT"}}}
	got, err := splice([]byte(doc), table(modules))
	if err != nil {
		t.Fatal(err)
	}
	s := string(got)
	if !strings.HasPrefix(s, "intro\n"+beginTable) || !strings.HasSuffix(s, endTable+"outro\n") || strings.Contains(s, "old") {
		t.Errorf("spliced:\n%s", s)
	}
	if !strings.Contains(s, "| a | v1.0.0 | ISC, MIT |") {
		t.Errorf("the module is not listed:\n%s", s)
	}
	if again, err := splice(got, table(modules)); err != nil || string(again) != s {
		t.Errorf("a second time: %v\n%s", err, again)
	}
	if _, err := splice([]byte("intro\n"), ""); err == nil {
		t.Error("a document without markers is accepted")
	}
}
