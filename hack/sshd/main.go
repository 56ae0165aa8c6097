// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sshd makes sure that the tests find OpenSSH's server, and prints where.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/kommit-dev/kommit/test/gitserver/sshd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	program, err := sshd.Ensure(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(program.Path)
}
