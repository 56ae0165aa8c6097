// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// buildKommit compiles the server and the kubectl plugin from this checkout and
// returns the folder that they are in.
func (s *Stack) buildKommit(ctx context.Context) (string, error) {
	dir := filepath.Join(s.root, ".cache", "stack")
	if s.config.RaceDetector {
		dir += "-race"
	}
	if s.config.Failpoints {
		dir += "-failpoints"
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	s.say("building kommit-apiserver and kubectl-commit (about two minutes the first time)")
	began := time.Now()
	// The flags of the control plane's own build: most packages are the same, and
	// then come from its cache.
	server := []string{"build", "-trimpath", "-o", dir, "./cmd/kommit-apiserver"}
	cgo := "CGO_ENABLED=0"
	if s.config.RaceDetector {
		server, cgo = append([]string{server[0], "-race"}, server[1:]...), "CGO_ENABLED=1"
	}
	if s.config.Failpoints {
		server = append([]string{server[0], "-tags=failpoints"}, server[1:]...)
	}
	if err := s.goCommand(ctx, cgo, server...); err != nil {
		return "", err
	}
	if err := s.goCommand(ctx, "CGO_ENABLED=0", "build", "-trimpath", "-o", dir, "./cmd/kubectl-commit"); err != nil {
		return "", err
	}
	// The same binary answers as "kubectl create commitrequest".
	link := filepath.Join(dir, "kubectl-create-commitrequest")
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return "", err
	}
	if err := os.Symlink("kubectl-commit", link); err != nil {
		return "", err
	}
	s.say("built in %s", time.Since(began).Round(time.Second))
	return dir, nil
}

func (s *Stack) goCommand(ctx context.Context, cgo string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.root, s.config.Log, s.config.Log
	cmd.Env = append(os.Environ(), cgo)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	return nil
}
