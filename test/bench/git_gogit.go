// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// goGitWorktree adds, commits and pushes with go-git's worktree, in one process
// that keeps the repository open.
func (r *gitRemote) goGitWorktree(ctx context.Context, paths []string) (measure, error) {
	checkout, err := r.clone(ctx, "checkout")
	if err != nil {
		return nil, err
	}
	program := filepath.Join(r.dir, "gogit")
	here, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/kommit-dev/kommit/test/bench").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(strings.TrimSpace(string(here)), "gogit"), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the peer: %w: %s", err, out)
	}
	cmd := exec.CommandContext(ctx, program, checkout, peerBranch)
	cmd.Env, cmd.Stderr = gitEnvironment(), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { return errors.Join(in.Close(), cmd.Wait()) })
	path := paths[0]
	return func(_ context.Context, round int) (float64, error) {
		if err := os.WriteFile(filepath.Join(checkout, path), []byte(manifest(path, fmt.Sprint("peer ", round))), 0o600); err != nil {
			return 0, err
		}
		if _, err := fmt.Fprintln(in, path); err != nil {
			return 0, err
		}
		var nanoseconds float64
		if _, err := fmt.Fscan(out, &nanoseconds); err != nil {
			return 0, fmt.Errorf("go-git did not push: %w", err)
		}
		return nanoseconds / 1e6, nil
	}, nil
}
