// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sshd finds OpenSSH's server for the tests. Where none is installed, it
// unpacks Debian's package into the repository's cache; it installs nothing.
package sshd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kommit-dev/kommit/test/controlplane/build"
)

const packageName = "openssh-server"

// Program is an sshd that can be run.
type Program struct {
	// Path is absolute, as sshd wants to be called.
	Path string
	// LibraryPath is for LD_LIBRARY_PATH: empty for an installed sshd.
	LibraryPath string
}

// Ensure returns the sshd of the machine, or the one in the cache, which it
// fetches first if it is missing: half a megabyte. log tells what goes on. It is
// called from anywhere inside the repository.
func Ensure(ctx context.Context, log io.Writer) (Program, error) {
	if path, err := exec.LookPath("sshd"); err == nil {
		path, err = filepath.Abs(path)
		return Program{Path: path}, err
	}
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return Program{Path: path}, nil
		}
	}
	root, err := build.RepositoryRoot()
	if err != nil {
		return Program{}, err
	}
	cache := filepath.Join(root, ".cache")
	if c := os.Getenv(build.CacheVariable); c != "" {
		if cache, err = filepath.Abs(c); err != nil {
			return Program{}, err
		}
	}
	dir := filepath.Join(cache, "openssh")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := fetch(ctx, cache, dir, log); err != nil {
			return Program{}, fmt.Errorf("there is no sshd on this machine, and fetching Debian's failed; install the server of OpenSSH: %w", err)
		}
	} else if err != nil {
		return Program{}, err
	}
	return unpacked(dir)
}

func unpacked(dir string) (Program, error) {
	p := Program{Path: filepath.Join(dir, "usr", "sbin", "sshd")}
	if _, err := os.Stat(p.Path); err != nil {
		return p, fmt.Errorf("%s is incomplete, remove it: %w", dir, err)
	}
	var libraries []string
	for _, pattern := range []string{"lib/*/*.so.*", "usr/lib/*/*.so.*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return p, err
		}
		if len(files) > 0 {
			libraries = append(libraries, filepath.Dir(files[0]))
		}
	}
	p.LibraryPath = strings.Join(libraries, ":")
	return p, nil
}

// fetch unpacks beside dir and then renames, so that dir is complete or missing;
// of two processes that do this at a time, the first one wins.
func fetch(ctx context.Context, cache, dir string, log io.Writer) error {
	if err := os.MkdirAll(cache, 0o755); err != nil { // #nosec G301 -- programs, as make has them
		return err
	}
	work, err := os.MkdirTemp(cache, ".openssh-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	fmt.Fprintf(log, "No sshd is installed; unpacking Debian's %s into %s for the tests.\n", packageName, dir)
	a := apt{work: work, log: log}
	if err := a.download(ctx, packageName); err != nil {
		fmt.Fprintln(log, "The machine's lists of packages do not serve; reading fresh ones into the cache ...")
		a.private = true
		if err := a.update(ctx); err != nil {
			return err
		}
		if err := a.download(ctx, packageName); err != nil {
			return err
		}
	}
	libraries, err := a.missingLibraries(ctx)
	if err != nil {
		return err
	}
	if len(libraries) > 0 {
		if err := a.download(ctx, libraries...); err != nil {
			return err
		}
	}
	archives, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return err
	}
	out := filepath.Join(work, "root")
	for _, archive := range archives {
		if _, err := a.run(ctx, "dpkg-deb", "-x", archive, out); err != nil {
			return err
		}
	}
	if err := os.Rename(out, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			return err
		}
	}
	fmt.Fprintf(log, "Unpacked %s.\n", strings.Join(append([]string{packageName}, libraries...), ", "))
	return nil
}

// apt runs the package tools, without privileges and without changing the machine.
type apt struct {
	work    string
	log     io.Writer
	private bool // lists of packages of our own
}

func (a apt) update(ctx context.Context) error {
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.work, dir), 0o755); err != nil { // #nosec G301 -- apt's own files
			return err
		}
	}
	_, err := a.get(ctx, "update")
	return err
}

func (a apt) download(ctx context.Context, packages ...string) error {
	_, err := a.get(ctx, append([]string{"download"}, packages...)...)
	return err
}

func (a apt) get(ctx context.Context, args ...string) (string, error) {
	options := []string{"-q", "-o", "APT::Sandbox::User="}
	if a.private {
		options = append(options,
			"-o", "Dir::State::lists="+filepath.Join(a.work, "lists"),
			"-o", "Dir::Cache="+filepath.Join(a.work, "cache"),
			"-o", "Debug::NoLocking=true")
	}
	return a.run(ctx, "apt-get", append(options, args...)...)
}

// missingLibraries are the libraries that the package depends on directly and
// that are not installed.
func (a apt) missingLibraries(ctx context.Context) ([]string, error) {
	archives, err := filepath.Glob(filepath.Join(a.work, packageName+"_*.deb"))
	if err != nil || len(archives) != 1 {
		return nil, fmt.Errorf("expected one archive of %s, found %d: %w", packageName, len(archives), errors.Join(err))
	}
	depends, err := a.run(ctx, "dpkg-deb", "-f", archives[0], "Depends")
	if err != nil {
		return nil, err
	}
	var missing []string
	for dependency := range strings.SplitSeq(depends, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(dependency), " ")
		if !strings.HasPrefix(name, "lib") {
			continue
		}
		status, err := a.run(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", name)
		if err != nil || status != "installed" {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

func (a apt) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) // #nosec G204 -- the package tools, with arguments made here
	cmd.Dir = a.work
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
