// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitserver

import (
	"os/exec"
	"os/user"

	"github.com/kommit-dev/kommit/test/gitserver/sshd"
)

// login is the user that logs in, who is always the one that runs the test, and
// what it takes to run an sshd for that.
type login struct {
	user string
	// wrap goes before the command of sshd; see newLogin.
	wrap []string
	// namespace runs it in a mount namespace of its own.
	namespace bool
}

func currentUser() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", err
	}
	return u.Username, nil
}

func (l login) command(p sshd.Program, args ...string) *exec.Cmd {
	line := append(append(append([]string{}, l.wrap...), p.Path), args...)
	cmd := exec.Command(line[0], line[1:]...) // #nosec G204 -- the sshd of the test
	if p.LibraryPath != "" {
		cmd.Env = append(cmd.Environ(), "LD_LIBRARY_PATH="+p.LibraryPath)
	}
	if l.namespace {
		unshareMounts(cmd)
	}
	return cmd
}
