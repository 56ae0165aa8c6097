// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestSleeps(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want int
	}{
		"in the open":          {"func TestA(t *testing.T) { time.Sleep(1); time.Sleep(2) }", 2},
		"as a value":           {"var wait = time.Sleep", 1},
		"in a bubble":          {"func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }", 0},
		"somebody else's":      {"func TestA(t *testing.T) { clock.Sleep(1) }", 0},
		"only named in a word": {"// time.Sleep\nvar s = \"time.Sleep\"", 0},
	} {
		got, err := sleeps("a_test.go", []byte("package a\n"+tc.body))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != tc.want {
			t.Errorf("%s: %v, want %d", name, got, tc.want)
		}
	}
}
