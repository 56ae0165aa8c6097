// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command etcd is the stock etcd server, from its Go module.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
