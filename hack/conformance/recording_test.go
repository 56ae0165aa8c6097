// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRangeStreamVariantsAreOne(t *testing.T) {
	got := leafSet{
		"TestList/rangeStream=false/a": true, "TestList/rangeStream=true/a": true,
		"TestWatch/RangeStream=true/Semantics/b": true, "TestWatch/Watch/b": true,
		"TestStats/SizeBasedListCostEstimate=true": true,
		"TestWatchChanSync/RangeStream/c":          true,
	}.withoutRangeStream()
	want := leafSet{
		"TestList/a": true, "TestWatch/Semantics/b": true, "TestWatch/Watch/b": true,
		"TestStats/SizeBasedListCostEstimate=true": true, "TestWatchChanSync/RangeStream/c": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecordingIsReadAsWritten(t *testing.T) {
	dir := t.TempDir()
	want := recording{version: "v0.1.2", leaves: leafSet{"TestB/x_#01": true, "TestA": true}, own: []string{"TestC"}}
	if err := want.write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := readRecording(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(recording{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecordingsThatAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"absent": func(dir string) error { return os.Remove(filepath.Join(dir, leavesFile)) },
		"empty": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, leavesFile), []byte(versionPrefix+"v0.1.2\n"), 0o600)
		},
		"of two versions": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, ownFile), []byte(versionPrefix+"v0.1.3\nTestC\n"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := (recording{version: "v0.1.2", leaves: leafSet{"TestA": true}, own: []string{"TestC"}}).write(dir); err != nil {
				t.Fatal(err)
			}
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			if r, err := readRecording(dir); err == nil {
				t.Errorf("read as %+v", r)
			}
		})
	}
}

func TestReplacements(t *testing.T) {
	for content, want := range map[string][]replacement{
		"# a comment\n\nTestA/x | TestB | a reason, with words\n": {{"TestA/x", "TestB", "a reason, with words"}},
		"TestA | - | nothing there\n":                             {{"TestA", "-", "nothing there"}},
		"TestA | TestB\n":                                         nil,
		"TestA | TestB | \n":                                      nil,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, replacementsFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readReplacements(dir)
		if (err != nil) != (want == nil) {
			t.Errorf("%q: error %v", content, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(replacement{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", content, diff)
		}
	}
}
