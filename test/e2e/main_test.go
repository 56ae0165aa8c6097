// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the main job on real parts: kube-apiserver, etcd,
// kube-controller-manager, kubectl, git http-backend, and kommit-apiserver
// deployed by artifacts/deploy.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/test/stack"
)

// running is shared by all tests; each has a namespace and a repository of its
// own.
var running *stack.Stack

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kommit-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx := context.Background()
	if running, err = stack.Start(ctx, stack.Config{Dir: dir, Log: os.Stderr, RaceDetector: cgo()}); err != nil {
		fmt.Fprintf(os.Stderr, "%v\nlogs are kept in %s/log\n", err, dir)
		return 1
	}
	code := m.Run()
	stopping, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := running.Stop(stopping); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if races := raceReports(running.ControlPlane.LogDir()); races != "" {
		fmt.Fprintf(os.Stderr, "kommit-apiserver has data races:\n%s\n", races)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "logs are kept in %s/log\n", dir)
		return code
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// cgo says whether the race detector can be linked on this machine.
func cgo() bool {
	_, err := exec.LookPath("gcc")
	return err == nil
}
