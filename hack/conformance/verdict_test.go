// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The comparison can fail: each case takes one thing away from a run that conforms.
func TestVerdict(t *testing.T) {
	recorded := recording{
		version: "v0.1.2",
		leaves:  leafSet{"TestGet/there": true, "TestGet/gone": true, "TestPages": true},
		own:     []string{"TestClient", "TestKeys"},
	}
	etcd3 := sources{version: "v0.1.2", tests: map[string]map[string]bool{"TestGet": {"RunTestGet": true}}}
	row := func(theirs, ours string) replacement { return replacement{theirs, ours, "because"} }

	tests := map[string]struct {
		change func(ran outcome)
		table  []replacement // added to TestClient's row
		etcd3  sources
		ours   sources
		want   string
	}{
		"all ran": {want: "STORAGE SUITE leaves=3 missing=0 skipped=0\n"},
		"a failure is not a gap": { // go test exits with an error of its own
			change: func(ran outcome) { ran["TestPages"] = "fail" },
			want:   "STORAGE SUITE leaves=3 missing=0 skipped=0\n",
		},
		"a leaf did not run": {
			change: func(ran outcome) { delete(ran, "TestGet/gone") },
			want:   "STORAGE SUITE leaves=3 missing=1 skipped=0\nmissing: TestGet/gone\n",
		},
		"a leaf did not end": {
			change: func(ran outcome) { ran["TestPages"] = "run" },
			want:   "STORAGE SUITE leaves=3 missing=1 skipped=0\nmissing: TestPages\n",
		},
		"a leaf was renamed by a parent": {
			change: func(ran outcome) { delete(ran, "TestPages"); ran["TestList/TestPages"] = "pass" },
			want:   "STORAGE SUITE leaves=3 missing=1 skipped=0\nmissing: TestPages\n",
		},
		"a leaf stands for others": {
			change: func(ran outcome) { ran["TestPages/one"] = "pass" },
			want:   "STORAGE SUITE leaves=3 missing=1 skipped=0\nmissing: TestPages\n",
		},
		"a leaf was skipped": {
			change: func(ran outcome) { ran["TestGet/gone"] = "skip" },
			want:   "STORAGE SUITE leaves=3 missing=0 skipped=1\nskipped: TestGet/gone\n",
		},
		"a parent was skipped": {
			change: func(ran outcome) {
				maps.DeleteFunc(ran, func(test, _ string) bool { return strings.HasPrefix(test, "TestGet/") })
				ran["TestGet"] = "skip"
			},
			want: "STORAGE SUITE leaves=3 missing=2 skipped=1\nmissing: TestGet/gone\nmissing: TestGet/there\nskipped: TestGet\n",
		},
		"a test of etcd3's own is not accounted for": {
			change: func(ran outcome) { delete(ran, "TestKeys") },
			want: "STORAGE SUITE leaves=3 missing=0 skipped=0\n" +
				"fault: TestKeys: is neither run nor in etcd3-replacements.txt\n",
		},
		"a replacement did not run": {
			table: []replacement{row("TestPages", "TestGone")},
			want: "STORAGE SUITE leaves=3 missing=0 skipped=0\n" +
				"fault: TestPages: its replacement TestGone did not pass\n",
		},
		"a row is out of date": {
			table: []replacement{row("TestRenamed", "TestBound")},
			want: "STORAGE SUITE leaves=3 missing=0 skipped=0\n" +
				"fault: TestRenamed: replaced by TestBound, but etcd3 has no such test\n",
		},
		"a leaf cannot be given up": {
			table: []replacement{row("TestPages", "-")},
			want: "STORAGE SUITE leaves=3 missing=0 skipped=0\n" +
				"fault: TestPages: a leaf of the suite needs a replacement\n",
		},
		"the module was updated": {
			etcd3: sources{version: "v0.1.3", tests: etcd3.tests},
			want: "STORAGE SUITE leaves=3 missing=0 skipped=0\n" +
				"fault: the leaves are those of k8s.io/apiserver v0.1.2, go.mod has v0.1.3: run make update-conformance\n",
		},
		"the name runs something else": {
			ours: sources{tests: map[string]map[string]bool{"TestGet": {"RunTestCreate": true}}},
			want: "STORAGE SUITE leaves=3 missing=0 skipped=0\n" +
				"fault: RunTestGet: upstream's tests run it, those of ours do not\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ran := outcome{
				"TestGet": "pass", "TestGet/there": "pass", "TestGet/gone": "pass",
				"TestPages": "pass", "TestKeys": "pass", "TestBound": "pass", "TestOurOwn": "pass",
			}
			if test.change != nil {
				test.change(ran)
			}
			if test.etcd3.tests == nil {
				test.etcd3 = etcd3
			}
			if test.ours.tests == nil {
				test.ours = etcd3
			}
			v := judge(recorded, append([]replacement{row("TestClient", "TestBound")}, test.table...), ran)
			v.checkVersion(recorded, test.etcd3)
			v.checkFunctions(test.etcd3, test.ours, "ours")
			var out strings.Builder
			v.print(&out)
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := strings.Count(test.want, "\n") == 1; v.ok() != want {
				t.Errorf("ok() = %v, want %v", v.ok(), want)
			}
		})
	}
}
