// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProgressCountsPackagesAndKeepsComplaints(t *testing.T) {
	p := newProgress(nil, 10)
	for _, chunk := range []string{
		"go: downloading k8s.io/api v0.37.2\nk8s.io/api/core/v1\nk8s.io/ap", "i/apps/v1\n",
		"# k8s.io/api/apps/v1\ntypes.go:3:1: no\n",
	} {
		if n, err := p.Write([]byte(chunk)); n != len(chunk) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	status := p.status(p.start.Add(75 * time.Second))
	for _, want := range []string{"1m15s", "2 packages compiled of 10", "k8s.io/api/apps/v1"} {
		if !strings.Contains(status, want) {
			t.Errorf("status %q lacks %q", status, want)
		}
	}
	if status := p.status(p.start.Add(90 * time.Second)); !strings.Contains(status, "linking") {
		t.Errorf("status %q, with no new package", status)
	}
	if got := p.complaints(); !strings.Contains(got, "types.go:3:1") || strings.Contains(got, "downloading") {
		t.Errorf("complaints = %q", got)
	}
}

func TestFlagsStampTheVersionIntoServerAndClient(t *testing.T) {
	flags := strings.Join(buildFlags("v1.37.2"), " ")
	for _, want := range []string{
		"-trimpath",
		"k8s.io/component-base/version.gitVersion=v1.37.2", "k8s.io/component-base/version.gitMinor=37",
		"k8s.io/client-go/pkg/version.gitVersion=v1.37.2", "k8s.io/client-go/pkg/version.gitMajor=1",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("flags lack %q", want)
		}
	}
}

func TestStampChangesWithSourcesAndFlags(t *testing.T) {
	module := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := os.WriteFile(filepath.Join(module, name), []byte("module m\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := builder{module: module}
	stamp := func(flags ...string) string {
		t.Helper()
		s, err := b.stamp(t.Context(), flags)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := stamp("-a")
	if again := stamp("-a"); again != first {
		t.Errorf("the same sources give %s and %s", first, again)
	}
	if other := stamp("-b"); other == first {
		t.Error("other flags give the same stamp")
	}
	if err := os.WriteFile(filepath.Join(module, "go.sum"), []byte("module n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed := stamp("-a"); changed == first {
		t.Error("another go.sum gives the same stamp")
	}
	if err := os.Remove(filepath.Join(module, "go.mod")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.stamp(t.Context(), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without go.mod: %v", err)
	}
}
