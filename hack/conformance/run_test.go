// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEventsOfGoTest(t *testing.T) {
	const stream = `{"Action":"start","Package":"x"}
{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/b"}
{"Action":"output","Test":"TestA/b","Output":"words of a passing test\n"}
{"Action":"pass","Test":"TestA/b"}
{"Action":"run","Test":"TestA/c"}
{"Action":"output","Test":"TestA/c","Output":"    x_test.go:1: why c failed\n"}
{"Action":"fail","Test":"TestA/c"}
{"Action":"fail","Test":"TestA"}
{"Action":"run","Test":"TestS"}
{"Action":"skip","Test":"TestS"}
{"Action":"run","Test":"TestHangs"}
{"Action":"output","Test":"TestHangs","Output":"how far it came\n"}
{"Action":"output","Package":"x","Output":"FAIL\tx\t1s\n"}
{"Action":"fail","Package":"x"}
`
	var log strings.Builder
	ran, err := readEvents(strings.NewReader(stream), &log)
	if err != nil {
		t.Fatal(err)
	}
	want := outcome{"TestA": "fail", "TestA/b": "pass", "TestA/c": "fail", "TestS": "skip", "TestHangs": "run"}
	if diff := cmp.Diff(want, ran); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("    x_test.go:1: why c failed\nFAIL\tx\t1s\nhow far it came\n", log.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	delete(want, "TestA")
	if diff := cmp.Diff(want, ran.leaves()); diff != "" {
		t.Errorf("leaves (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(leafSet{"TestA/b": true}, ran.passed()); diff != "" {
		t.Errorf("passed (-want +got):\n%s", diff)
	}
}

func TestCutStreamIsAnError(t *testing.T) {
	if _, err := readEvents(strings.NewReader(`{"Action":"run","Te`), &strings.Builder{}); err == nil {
		t.Error("a stream cut in the middle of an event was taken for complete")
	}
}

// That the package does not build is told, and is not taken for an empty run.
func TestPackageThatDoesNotBuild(t *testing.T) {
	var log strings.Builder
	ran, err := goTest(t.Context(), "./testdata/broken", nil, &log)
	if err == nil || len(ran) != 0 || !strings.Contains(log.String(), "undefinedName") {
		t.Errorf("ran %v, error %v, log:\n%s", ran, err, log.String())
	}
}
