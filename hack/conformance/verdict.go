// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
)

// verdict is how our tests compare with etcd3's.
type verdict struct {
	leaves           int
	missing, skipped []string
	faults           []string // of the comparison's own grounds
}

// judge compares what ran with what was recorded.
func judge(recorded recording, table []replacement, ran outcome) *verdict {
	v := &verdict{leaves: len(recorded.leaves)}
	leaves := ran.leaves()
	for _, leaf := range sorted(recorded.leaves) {
		switch leaves[leaf] {
		case "pass", "fail": // a failure is go test's own to report
		case "skip":
		default: // never started, not a leaf, or never ended
			v.missing = append(v.missing, leaf)
		}
	}
	// A skip anywhere hides something: a parent's hides its leaves' names.
	for test, action := range ran {
		if action == "skip" {
			v.skipped = append(v.skipped, test)
		}
	}
	slices.Sort(v.skipped)
	v.checkTable(recorded, table, ran)
	return v
}

// checkTable: each test of etcd3's own parts is run under its name or has a row,
// and each row is about something that exists on both sides.
func (v *verdict) checkTable(recorded recording, table []replacement, ran outcome) {
	rows := map[string]bool{}
	for _, r := range table {
		rows[r.theirs] = true
		own := slices.Contains(recorded.own, r.theirs)
		switch {
		case !own && !recorded.leaves[r.theirs]:
			v.fault("%s: replaced by %s, but etcd3 has no such test", r.theirs, r.ours)
		case r.ours == "-" && !own:
			v.fault("%s: a leaf of the suite needs a replacement", r.theirs)
		case r.ours != "-" && ran[r.ours] != "pass":
			v.fault("%s: its replacement %s did not pass", r.theirs, r.ours)
		}
	}
	for _, test := range recorded.own {
		if !rows[test] && ran[test] != "pass" {
			v.fault("%s: is neither run nor in %s", test, replacementsFile)
		}
	}
}

// checkVersion: the recording is of the version in use.
func (v *verdict) checkVersion(recorded recording, etcd3 sources) {
	if recorded.version != etcd3.version {
		v.fault("the leaves are those of k8s.io/apiserver %s, go.mod has %s: run make update-conformance", recorded.version, etcd3.version)
	}
}

// checkFunctions: the tests of package mention each function of the suite that
// upstream's do. A leaf's name alone does not say what ran under it.
func (v *verdict) checkFunctions(upstream, ours sources, pkg string) {
	mentioned := ours.functions()
	for _, f := range sorted(upstream.functions()) {
		if !mentioned[f] {
			v.fault("%s: upstream's tests run it, those of %s do not", f, pkg)
		}
	}
}

func (v *verdict) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

func (v *verdict) ok() bool { return len(v.missing)+len(v.skipped)+len(v.faults) == 0 }

func (v *verdict) print(w io.Writer) {
	fmt.Fprintf(w, "STORAGE SUITE leaves=%d missing=%d skipped=%d\n", v.leaves, len(v.missing), len(v.skipped))
	for _, name := range v.missing {
		fmt.Fprintln(w, "missing:", name)
	}
	for _, name := range v.skipped {
		fmt.Fprintln(w, "skipped:", name)
	}
	for _, fault := range v.faults {
		fmt.Fprintln(w, "fault:", fault)
	}
}
