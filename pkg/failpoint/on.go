// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// hits counts how often the instant of Variable was reached.
var hits atomic.Int64

// Hit ends the process if Variable says so, without a chance to clean anything up.
func Hit(name string) {
	wanted, nth, counted := strings.Cut(os.Getenv(Variable), ":")
	if wanted != name {
		return
	}
	n := 1
	if counted {
		n, _ = strconv.Atoi(nth)
	}
	if hits.Add(1) == int64(n) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing is done between the signal and the end
	}
}
