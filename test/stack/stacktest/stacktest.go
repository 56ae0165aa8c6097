// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stacktest runs a stack for tests, with the race detector in
// kommit-apiserver where this machine can link it.
package stacktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/test/stack"
)

const (
	// stopTimeout bounds the end of all processes.
	stopTimeout = time.Minute
	// reportSize is how much of a race detector's report is shown.
	reportSize = 8192
)

// Run runs a package's tests on one stack, which they share, and returns the exit
// code. The state folder is removed unless something went wrong. started is given the
// stack before the first test. Dir, Log and RaceDetector of c are set by Run.
func Run(m *testing.M, c stack.Config, started func(*stack.Stack)) int {
	if err := run(m, c, started); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func run(m *testing.M, c stack.Config, started func(*stack.Stack)) error {
	dir, err := os.MkdirTemp("", "kommit-")
	if err != nil {
		return err
	}
	ctx := context.Background()
	s, err := stack.Start(ctx, complete(c, dir))
	if err == nil {
		started(s)
		if code := m.Run(); code != 0 {
			err = errors.New("tests failed")
		}
		err = errors.Join(err, stop(ctx, s))
	}
	if err != nil {
		return fmt.Errorf("%w\nlogs are kept in %s/log", err, dir)
	}
	return os.RemoveAll(dir)
}

// Start starts a stack that ends with the test. Dir, Log and RaceDetector of c are set
// by Start.
func Start(t testing.TB, c stack.Config) *stack.Stack {
	t.Helper()
	s, err := stack.Start(t.Context(), complete(c, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(context.WithoutCancel(t.Context()), s); err != nil {
			t.Error(err)
		}
	})
	return s
}

func complete(c stack.Config, dir string) stack.Config {
	_, noCompiler := exec.LookPath("gcc")
	c.Dir, c.Log, c.RaceDetector = dir, os.Stderr, noCompiler == nil
	return c
}

// stop ends the stack. What the race detector found is an error.
func stop(ctx context.Context, s *stack.Stack) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return errors.Join(s.Stop(ctx), dataRaces(s.ControlPlane.LogDir()))
}

// dataRaces searches the log of each process for reports of the race detector.
func dataRaces(logDir string) error {
	files, err := filepath.Glob(filepath.Join(logDir, "*.log"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		log, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, report, found := bytes.Cut(log, []byte("WARNING: DATA RACE")); found {
			errs = append(errs, fmt.Errorf("%s has data races:\n%s", filepath.Base(file), report[:min(len(report), reportSize)]))
		}
	}
	return errors.Join(errs...)
}
