// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package bolt

// lockHolder is the process that has the lock of the file, 0: that cannot be seen.
func lockHolder(string) int { return 0 }
