// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lockHolder is the process that has the lock of the file, 0 when that cannot be
// seen: it may be in another container, or on another node.
func lockHolder(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	dev := uint64(stat.Dev) //nolint:unconvert // its type differs by architecture
	major, minor := dev>>8&0xfff|dev>>32&^0xfff, dev&0xff|dev>>12&^0xff
	file := fmt.Sprintf("%02x:%02x:%d", major, minor, stat.Ino)

	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer func() { _ = locks.Close() }()
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != file {
			continue // those that wait have an arrow in front
		}
		pid, err := strconv.Atoi(fields[4])
		if err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
