// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package build makes the programs of the test control plane from their Go
// modules: etcd, kube-apiserver, kube-controller-manager and kubectl. Their
// module, test/controlplane/binaries, is not the product's, so k8s.io/kubernetes
// stays out of the product's dependencies.
package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// CacheVariable names the environment variable for the folder that built
	// programs are kept in, instead of .cache in the repository.
	CacheVariable = "KOMMIT_CACHE"

	moduleDir = "test/controlplane/binaries"
	stampFile = "stamp"
)

// packages are the programs, as seen from their module.
func packages() []string {
	return []string{
		"./cmd/etcd",
		"k8s.io/kubernetes/cmd/kube-apiserver",
		"k8s.io/kubernetes/cmd/kube-controller-manager",
		"k8s.io/kubernetes/cmd/kubectl",
	}
}

// EnsureBinaries returns the folder that holds the programs, building them
// first if they are missing or made from something else. The first build takes
// about six minutes on two cores; log tells what goes on. Processes that call
// it at the same time wait for one build. It is called from anywhere inside
// the repository.
func EnsureBinaries(ctx context.Context, log io.Writer) (dir string, err error) {
	root, err := RepositoryRoot()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, ".cache", "controlplane")
	if cache := os.Getenv(CacheVariable); cache != "" {
		if dir, err = filepath.Abs(filepath.Join(cache, "controlplane")); err != nil {
			return "", err
		}
	}
	b := builder{module: filepath.Join(root, moduleDir), dir: dir, log: log}
	if err := b.ensure(ctx); err != nil {
		return "", fmt.Errorf("build the control plane: %w", err)
	}
	return dir, nil
}

// RepositoryRoot finds the checkout that the working folder is in.
func RepositoryRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, moduleDir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no folder above %s holds %s: run this inside a checkout of kommit", wd, moduleDir)
		}
	}
}

type builder struct {
	module, dir string
	log         io.Writer
}

func (b builder) ensure(ctx context.Context) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()

	version, err := b.version(ctx)
	if err != nil {
		return err
	}
	flags := buildFlags(version)
	stamp, err := b.stamp(ctx, flags)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(filepath.Join(b.dir, stampFile))
	if err == nil && string(have) == stamp && b.complete() {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := b.build(ctx, version, flags); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, stampFile), []byte(stamp), 0o644)
}

func (b builder) complete() bool {
	for _, p := range packages() {
		if _, err := os.Stat(filepath.Join(b.dir, filepath.Base(p))); err != nil {
			return false
		}
	}
	return true
}

// build builds beside the folder's programs and then replaces them, so that an
// interrupted build leaves the old ones, and running ones are not disturbed.
func (b builder) build(ctx context.Context, version string, flags []string) error {
	start := time.Now()
	fmt.Fprintf(b.log, "Building etcd, kube-apiserver, kube-controller-manager and kubectl %s from their Go modules into %s.\n", version, b.dir)
	fmt.Fprintln(b.log, "The first time this takes about six minutes on two cores and 4 GB of Go build cache; after that, seconds.")
	if err := os.Remove(filepath.Join(b.dir, stampFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.MkdirTemp(b.dir, ".build-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)

	total, err := b.count(ctx, flags)
	if err != nil {
		return err
	}
	args := append([]string{"build", "-v", "-o", out + string(os.PathSeparator)}, flags...)
	cmd := b.command(ctx, append(args, packages()...)...)
	progress := newProgress(b.log, total)
	cmd.Stderr = progress
	stop := progress.report(15 * time.Second)
	err = cmd.Run()
	stop()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, progress.complaints())
	}
	for _, p := range packages() {
		name := filepath.Base(p)
		if err := os.Rename(filepath.Join(out, name), filepath.Join(b.dir, name)); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.log, "Built the control plane in %s.\n", time.Since(start).Round(time.Second))
	return nil
}

// count downloads the modules, which go list does silently, and says how many
// packages there are to build at most.
func (b builder) count(ctx context.Context, flags []string) (int, error) {
	fmt.Fprintln(b.log, "Resolving modules (90 MiB to download if the module cache is empty) ...")
	args := append([]string{"list", "-deps"}, flags...)
	out, err := b.output(ctx, append(args, packages()...)...)
	return bytes.Count(out, []byte("\n")), err
}

// version is that of Kubernetes, such as v1.37.2.
func (b builder) version(ctx context.Context) (string, error) {
	out, err := b.output(ctx, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	return strings.TrimSpace(string(out)), err
}

// stamp names everything that the programs are made from.
func (b builder) stamp(ctx context.Context, flags []string) (string, error) {
	h := sha256.New()
	sources, err := filepath.Glob(filepath.Join(b.module, "cmd", "*", "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range append(sources, filepath.Join(b.module, "go.mod"), filepath.Join(b.module, "go.sum")) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%d\n", len(content))
		h.Write(content)
	}
	toolchain, err := b.output(ctx, "version")
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%s%q%q", toolchain, flags, packages())
	return hex.EncodeToString(h.Sum(nil)), nil
}

func buildFlags(version string) []string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	ld := []string{"-s", "-w"} // half the size, a faster link
	// component-base: what /version says. client-go: what User-Agent says.
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, set := range [][2]string{
			{"gitVersion", version},
			{"gitMajor", major},
			{"gitMinor", minor},
			{"gitTreeState", "clean"},
			{"gitCommit", strings.Repeat("0", 40)},
			{"buildDate", "1970-01-01T00:00:00Z"},
		} {
			ld = append(ld, "-X", pkg+"."+set[0]+"="+set[1])
		}
	}
	// -trimpath: a build cache that serves every checkout.
	return []string{"-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags=" + strings.Join(ld, " ")}
}

func (b builder) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.module
	// Without cgo no C compiler is needed and the programs are static.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	// Ask first: go then ends the compilers it started.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func (b builder) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := b.command(ctx, args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args[:min(2, len(args))], " "), err, complaints.Bytes())
	}
	return out, nil
}

// lock waits until no other process builds into the folder.
func (b builder) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(b.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for said := false; ; said = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !said {
			fmt.Fprintf(b.log, "Waiting for another process that builds into %s ...\n", b.dir)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		}
	}
}
