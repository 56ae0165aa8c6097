// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package controlplane

import "syscall"

func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// startTime says only that pid is there: this system tells no more without a
// privileged call.
func startTime(pid int) string {
	if syscall.Kill(pid, 0) != nil {
		return ""
	}
	return "unknown"
}
