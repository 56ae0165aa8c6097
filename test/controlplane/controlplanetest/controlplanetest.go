// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplanetest starts a control plane for a test.
package controlplanetest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/test/controlplane"
)

// stopTimeout bounds the end of all processes.
const stopTimeout = 30 * time.Second

// New prepares a control plane that ends with the test, pass or fail, and
// starts nothing yet. Dir and BinDir of c may be left empty: a temporary folder
// and the built programs.
func New(t testing.TB, c controlplane.Config) *controlplane.ControlPlane {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if c.BinDir == "" {
		dir, err := controlplane.EnsureBinaries(t.Context(), os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		c.BinDir = dir
	}
	cp, err := controlplane.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := cp.Stop(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			showLogs(t, cp.LogDir())
		}
	})
	return cp
}

// logTail is how many lines of each log a failed test shows: its folder goes.
const logTail = 40

func showLogs(t testing.TB, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		t.Logf("the end of %s:\n%s", filepath.Base(file), strings.Join(lines[max(0, len(lines)-logTail):], "\n"))
	}
}

// Start is New and Start.
func Start(t testing.TB, c controlplane.Config) *controlplane.ControlPlane {
	t.Helper()
	cp := New(t, c)
	if err := cp.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return cp
}
