// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package failpoint

// Hit does nothing.
func Hit(string) {}
