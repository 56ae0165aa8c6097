// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest turns objects as the API server serves them into the files
// that Git keeps: what is intent (C2), how it is written, where it goes (C13) and
// how a file that is already there is made to say it (C14).
//
// The package is pure: no I/O, no clock, no state. All functions are safe for
// concurrent use and none writes to its arguments.
package manifest
