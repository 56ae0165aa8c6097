// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// KubectlError is a kubectl that did not exit with 0. It unwraps to what
// os/exec says, *exec.ExitError as a rule.
type KubectlError struct {
	User   string
	Args   []string
	Stderr string
	Err    error
}

func (e *KubectlError) Error() string {
	return fmt.Sprintf("kubectl %s (as %s): %v: %s", strings.Join(e.Args, " "), e.User, e.Err, strings.TrimSpace(e.Stderr))
}

func (e *KubectlError) Unwrap() error { return e.Err }

// Kubectl runs kubectl as user; err is a *KubectlError when it says no.
func (cp *ControlPlane) Kubectl(ctx context.Context, user string, args ...string) (stdout, stderr string, err error) {
	return cp.KubectlInput(ctx, user, nil, args...)
}

// KubectlInput is Kubectl with a standard input.
func (cp *ControlPlane) KubectlInput(ctx context.Context, user string, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	cmd, err := cp.KubectlCommand(ctx, user, args...)
	if err != nil {
		return "", "", err
	}
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), errOut.String(), &KubectlError{User: user, Args: args, Stderr: errOut.String(), Err: err}
	}
	return out.String(), errOut.String(), nil
}

// KubectlCommand prepares a kubectl, of the control plane's version, that acts
// as user (in the groups of the user's last Kubeconfig), finds the plugins of
// Config.PluginDir, and knows neither settings nor caches of the machine.
func (cp *ControlPlane) KubectlCommand(ctx context.Context, user string, args ...string) (*exec.Cmd, error) {
	kubeconfig, err := cp.Kubeconfig(user)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(cp.config.Dir, "home", fileName(user))
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	path := cp.config.BinDir + string(os.PathListSeparator) + os.Getenv("PATH")
	if cp.config.PluginDir != "" {
		path = cp.config.PluginDir + string(os.PathListSeparator) + path
	}
	cmd := exec.CommandContext(ctx, cp.binary("kubectl"), args...)
	cmd.Env = append(withoutProxies(os.Environ()), "KUBECONFIG="+kubeconfig, "HOME="+home, "PATH="+path)
	return cmd, nil
}
