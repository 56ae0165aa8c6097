// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kommit-apiserver is the aggregated API server of kommit.dev.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/kommit-dev/kommit/pkg/apiserver"
)

func main() {
	os.Exit(cli.Run(apiserver.NewCommand()))
}
