// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// processAttributes put a child into a process group of its own, so that a
// Ctrl-C in the terminal reaches only its owner, and let the kernel kill it
// when the owner dies in whatever way.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// startTime is when the kernel started pid, in clock ticks since boot; "" when
// there is no such process (or only its zombie). Together with the pid it
// names a process: a reused pid has another one.
func startTime(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The second field, the name in parentheses, may itself hold anything.
	s := string(b)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}
