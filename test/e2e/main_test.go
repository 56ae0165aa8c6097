// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the main job on real parts: kube-apiserver, etcd,
// kube-controller-manager, kubectl, git http-backend, and kommit-apiserver
// deployed by artifacts/deploy.
package e2e

import (
	"os"
	"testing"

	"github.com/kommit-dev/kommit/test/stack"
	"github.com/kommit-dev/kommit/test/stack/stacktest"
)

// running is shared by all tests; each has a namespace and a repository of its
// own.
var running *stack.Stack

func TestMain(m *testing.M) {
	os.Exit(stacktest.Run(m, stack.Config{}, func(s *stack.Stack) { running = s }))
}
