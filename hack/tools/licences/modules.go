// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// minimumCoverage is how much of a licence file, in percent of its words, must
// be licence text that is known word for word. The rest is names and years.
const minimumCoverage = 75

// allowed are the licences under which code may be linked into an Apache-2.0
// program and shipped without further duties than keeping notices.
func allowed() []string {
	return []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unlicense"}
}

// licenceFile matches the names that licences are kept under.
var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([.-].*)?$`)

// module is a module with packages that are linked into the product.
type module struct {
	Path, Version, Dir string
	Direct             bool
	packageDirs        []string
	licences           []string // SPDX identifiers, after classify
}

// RefusedError names a module whose licence is unknown or not allowed.
type RefusedError struct{ Module, Reason string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: %s: replace it, or, after reading its licence, extend the list in hack/tools/licences", e.Module, e.Reason)
}

// linkedModules lists the modules of all non-test dependencies, by path. The
// platform is fixed, so that the answer does not depend on the machine.
func linkedModules(root string, patterns []string) ([]module, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,Module"}, patterns...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, complaints.Bytes())
	}
	return parse(out)
}

func parse(list []byte) ([]module, error) {
	byPath := map[string]*module{}
	for decoder := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main, Indirect     bool
			}
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module == nil || p.Module.Main { // the standard library, ourselves
			continue
		}
		m := byPath[p.Module.Path]
		if m == nil {
			m = &module{Path: p.Module.Path, Version: p.Module.Version, Dir: p.Module.Dir, Direct: !p.Module.Indirect}
			byPath[m.Path] = m
		}
		m.packageDirs = append(m.packageDirs, p.Dir)
	}
	var modules []module
	for _, m := range slices.SortedFunc(maps.Values(byPath), func(a, b *module) int { return cmp.Compare(a.Path, b.Path) }) {
		modules = append(modules, *m)
	}
	return modules, nil
}

// classify reads the licence files beside and above the linked packages, up to
// the module's root, and refuses what is not known and allowed: *RefusedError.
func (m *module) classify() error {
	files, err := m.licenceFiles()
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return &RefusedError{Module: m.Path, Reason: "no licence file"}
	}
	found := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := filepath.Base(file)
		coverage := licensecheck.Scan(text)
		if coverage.Percent < minimumCoverage {
			return &RefusedError{Module: m.Path, Reason: fmt.Sprintf("%s is not a known licence (%.0f%% of it is)", name, coverage.Percent)}
		}
		for _, match := range coverage.Match {
			if match.IsURL {
				continue
			}
			if !slices.Contains(allowed(), match.ID) {
				return &RefusedError{Module: m.Path, Reason: name + " is " + match.ID + ", which is not allowed"}
			}
			found[match.ID] = true
		}
	}
	m.licences = slices.Sorted(maps.Keys(found))
	if len(m.licences) == 0 {
		return &RefusedError{Module: m.Path, Reason: "its licence file only points elsewhere"}
	}
	return nil
}

func (m *module) licenceFiles() ([]string, error) {
	seen := map[string]bool{}
	var files []string
	for _, dir := range m.packageDirs {
		for ; !seen[dir] && within(dir, m.Dir); dir = filepath.Dir(dir) {
			seen[dir] = true
			entries, err := os.ReadDir(dir)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if e.Type()&fs.ModeType == 0 && licenceFile.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
					files = append(files, filepath.Join(dir, e.Name()))
				}
			}
		}
	}
	return files, nil
}

// within says that dir is root or below it.
func within(dir, root string) bool {
	return dir == root || strings.HasPrefix(dir, root+string(filepath.Separator))
}
