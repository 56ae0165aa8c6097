// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	leavesFile       = "etcd3-leaves.txt"
	ownFile          = "etcd3-own-tests.txt"
	replacementsFile = "etcd3-replacements.txt"

	versionPrefix = "# k8s.io/apiserver "
)

// leafSet are names of tests without subtests.
type leafSet map[string]bool

// withoutRangeStream takes out the name of the one variant that exists for etcd
// only: whether its client reads a list as a stream or in pages, which no caller
// of the storage can see. Etcd3 runs each such leaf twice, under a parent named
// rangeStream=false or =true, in either case of the first letter.
func (s leafSet) withoutRangeStream() leafSet {
	out := leafSet{}
	for name := range s {
		var kept []string
		for part := range strings.SplitSeq(name, "/") {
			switch strings.ToLower(part) {
			case "rangestream=false", "rangestream=true":
			default:
				kept = append(kept, part)
			}
		}
		out[strings.Join(kept, "/")] = true
	}
	return out
}

// recording is what etcd3's tests consist of, at one version of its module.
type recording struct {
	version string
	leaves  leafSet  // of the tests that run the suite
	own     []string // the other tests
}

func (r recording) write(dir string) error {
	const recorded = "# Recorded by make update-conformance; not to be edited.\n"
	leaves := "# The leaves of those tests of etcd3 that run k8s.io/apiserver/pkg/storage/testing.\n" +
		"# The parents rangeStream=false and =true are left out of the names: they choose\n" +
		"# between two ways of etcd's client to read, so each leaf below them is there twice.\n"
	own := "# The other tests of etcd3, which test its own parts.\n"
	for name, content := range map[string]string{
		leavesFile: leaves + recorded + versionPrefix + r.version + "\n" + lines(sorted(r.leaves)),
		ownFile:    own + recorded + versionPrefix + r.version + "\n" + lines(r.own),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func lines(names []string) string { return strings.Join(names, "\n") + "\n" }

func readRecording(dir string) (recording, error) {
	r := recording{leaves: leafSet{}}
	names, version, err := readNames(filepath.Join(dir, leavesFile))
	if err != nil {
		return r, err
	}
	for _, name := range names {
		r.leaves[name] = true
	}
	r.version = version
	if r.own, version, err = readNames(filepath.Join(dir, ownFile)); err != nil {
		return r, err
	}
	if r.version != version || len(r.leaves) == 0 {
		return r, fmt.Errorf("%s: %s and %s are not of one recording: run make update-conformance", dir, leavesFile, ownFile)
	}
	return r, nil
}

// readNames returns the lines that are no comment, and the version in the comment.
func readNames(path string) (names []string, version string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, "", fmt.Errorf("%w: run make update-conformance", err)
	}
	defer file.Close()
	scan := bufio.NewScanner(file)
	for scan.Scan() {
		if v, ok := strings.CutPrefix(scan.Text(), versionPrefix); ok {
			version = v
		}
		if scan.Text() != "" && !strings.HasPrefix(scan.Text(), "#") {
			names = append(names, scan.Text())
		}
	}
	return names, version, scan.Err()
}

// replacement is a row of the table: what of etcd3's we run otherwise.
type replacement struct {
	theirs string // a leaf of the suite, or a test of etcd3's own parts
	ours   string // the test that takes its place; "-": there is nothing to test
	reason string
}

func readReplacements(dir string) ([]replacement, error) {
	path := filepath.Join(dir, replacementsFile)
	rows, _, err := readNames(path)
	if err != nil {
		return nil, err
	}
	var table []replacement
	for _, row := range rows {
		columns := strings.Split(row, " | ")
		if len(columns) != 3 {
			return nil, fmt.Errorf("%s: %q: want etcd3's test | our test | the reason", path, row)
		}
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		r := replacement{theirs: columns[0], ours: columns[1], reason: columns[2]}
		if r.theirs == "" || r.ours == "" || r.reason == "" {
			return nil, fmt.Errorf("%s: %q: a column is empty", path, row)
		}
		table = append(table, r)
	}
	return table, nil
}
