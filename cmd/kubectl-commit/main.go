// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// kubectl-commit is the kubectl plugin of kommit. Linked as
// kubectl-create-commitrequest it answers to "kubectl create commitrequest".
package main

import (
	"context"
	"os"

	"github.com/kommit-dev/kommit/pkg/kubectl"
)

func main() {
	os.Exit(kubectl.Main(context.Background(), os.Args, kubectl.StandardStreams()))
}
