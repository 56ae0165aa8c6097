// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command controlplane builds the programs of the test control plane, unless
// they are there already, and prints their folder.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/kommit-dev/kommit/test/controlplane/build"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := build.EnsureBinaries(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
