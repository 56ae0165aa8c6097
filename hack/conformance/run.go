// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// outcome is what became of each test, subtests included: pass, fail, skip, or
// run when it did not end.
type outcome map[string]string

// goTest runs a package's tests and writes to log what go test would have
// shown. The outcome is complete also when it returns an error.
func goTest(ctx context.Context, pkg string, args []string, log io.Writer) (outcome, error) {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"test", "-json"}, args...), pkg)...)
	if slices.Contains(args, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = log
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("go test %s: %w", pkg, err)
	}
	ran, err := readEvents(events, log)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return ran, fmt.Errorf("go test %s: %w", pkg, err)
	}
	return ran, nil
}

// readEvents reads the stream of go test -json. What a test printed is shown
// when it fails or does not end.
func readEvents(r io.Reader, log io.Writer) (outcome, error) {
	ran := outcome{}
	printed := map[string]*strings.Builder{}
	show := func(test string) {
		if b := printed[test]; b != nil {
			fmt.Fprint(log, b)
			delete(printed, test)
		}
	}
	for d := json.NewDecoder(r); ; {
		var e struct{ Action, Test, Output string }
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return ran, fmt.Errorf("reading the events of go test: %w", err)
		}
		switch {
		case e.Test == "":
			fmt.Fprint(log, e.Output)
			continue
		case e.Action == "output":
			if printed[e.Test] == nil {
				printed[e.Test] = &strings.Builder{}
			}
			printed[e.Test].WriteString(e.Output)
			continue
		case e.Action == "run":
			ran[e.Test] = "run"
		case e.Action == "pass", e.Action == "skip":
			ran[e.Test] = e.Action
			delete(printed, e.Test)
		case e.Action == "fail":
			ran[e.Test] = "fail"
			show(e.Test)
		}
	}
	for test, action := range ran {
		if action == "run" {
			show(test)
		}
	}
	return ran, nil
}

// leaves leaves out the tests that have subtests.
func (o outcome) leaves() outcome {
	out := maps.Clone(o)
	for test := range o {
		for i, c := range test {
			if c == '/' {
				delete(out, test[:i])
			}
		}
	}
	return out
}

// passed are the names of the leaves that passed.
func (o outcome) passed() leafSet {
	out := leafSet{}
	for test, action := range o.leaves() {
		if action == "pass" {
			out[test] = true
		}
	}
	return out
}
