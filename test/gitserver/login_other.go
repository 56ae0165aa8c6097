// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package gitserver

import (
	"context"
	"io"
	"os/exec"
)

// newLogin: the sshd of the machine runs as whoever runs the tests.
func newLogin(context.Context, string, io.Writer) (login, error) {
	name, err := currentUser()
	return login{user: name}, err
}

func unshareMounts(*exec.Cmd) {}
