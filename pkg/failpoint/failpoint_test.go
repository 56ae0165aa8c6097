// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package failpoint_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kommit-dev/kommit/pkg/failpoint"
)

// A binary with the tag ends at the instant that is asked for, at that time, as by
// kill -9; one without it never does.
func TestOnlyTheTagMakesAFailpoint(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(`package main

import (
	"fmt"

	"github.com/kommit-dev/kommit/pkg/failpoint"
)

func main() {
	for range 3 {
		fmt.Println("before")
		failpoint.Hit(failpoint.PushBefore)
		failpoint.Hit(failpoint.PushAfter)
	}
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(tags, variable string) (lines int, killed bool) {
		t.Helper()
		binary := filepath.Join(dir, "binary"+tags)
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags="+tags, "-o", binary, source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		command := exec.CommandContext(t.Context(), binary)
		command.Env = append(os.Environ(), failpoint.Variable+"="+variable)
		out, err := command.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			status, _ := exit.Sys().(syscall.WaitStatus)
			killed = status.Signaled() && status.Signal() == syscall.SIGKILL
		} else if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(out), "before"), killed
	}
	tests := []struct {
		tags, variable string
		lines          int
		killed         bool
	}{
		{"failpoints", failpoint.PushBefore, 1, true},
		{"failpoints", failpoint.PushAfter + ":3", 3, true},
		{"failpoints", failpoint.PushAfter + ":4", 3, false},
		{"failpoints", failpoint.StatusAfter, 3, false},
		{"failpoints", "", 3, false},
		{"", failpoint.PushBefore, 3, false},
	}
	for _, test := range tests {
		if lines, killed := run(test.tags, test.variable); lines != test.lines || killed != test.killed {
			t.Errorf("tags %q, %q: came to %d, killed %v; want %d, %v", test.tags, test.variable, lines, killed, test.lines, test.killed)
		}
	}
	names := failpoint.Names()
	slices.Sort(names)
	if len(slices.Compact(names)) != 6 {
		t.Errorf("names are %q", names)
	}
}
