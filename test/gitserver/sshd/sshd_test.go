// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package sshd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kommit-dev/kommit/test/controlplane/build"
	"github.com/kommit-dev/kommit/test/gitserver/sshd"
)

func TestEnsuredProgramRuns(t *testing.T) {
	p, err := sshd.Ensure(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), p.Path, "-?")
	cmd.Env = append(cmd.Environ(), "LD_LIBRARY_PATH="+p.LibraryPath)
	out, _ := cmd.CombinedOutput() // a usage with the version, and a status that says so
	if !filepath.IsAbs(p.Path) || !strings.Contains(string(out), "OpenSSH") {
		t.Errorf("%s says %q", p.Path, out)
	}
}

// A folder that an older version, or a full disk, left without the program is
// named, and not taken for the program.
func TestIncompleteCacheIsNamed(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(build.CacheVariable, cache)
	t.Setenv("PATH", "")
	dir := filepath.Join(cache, "openssh")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := sshd.Ensure(t.Context(), os.Stderr)
	if installed := err == nil && !strings.HasPrefix(p.Path, cache); installed {
		return // nothing is taken from the cache on this machine
	}
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("program %+v, error %v, want one that names %s", p, err, dir)
	}
}
