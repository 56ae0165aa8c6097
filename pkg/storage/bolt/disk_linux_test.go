// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Two ways in which a disk is really full, both for one process only: a tmpfs of
// a few MiB in a mount namespace of its own, where the machine allows one, and a
// limit on the size of files, everywhere.
const (
	smallDisk  = "small disk"
	limitFiles = "file size limit"
)

// diskKind says which one the process is for, that TestFullDisk starts.
const diskKind = "KOMMIT_TEST_DISK"

// noMount is its exit code where the machine does not let it mount.
const noMount = 77

func startOnFullDisk(t *testing.T, kind string) {
	attributes := []*syscall.SysProcAttr{nil}
	if kind == smallDisk {
		attributes = []*syscall.SysProcAttr{
			{Cloneflags: syscall.CLONE_NEWNS},
			{
				Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			},
		}
	}
	for _, a := range attributes {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		cmd.Env, cmd.SysProcAttr = append(os.Environ(), diskKind+"="+kind), a
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil:
			return
		case kind == smallDisk && (errors.Is(err, syscall.EPERM) || (errors.As(err, &exit) && exit.ExitCode() == noMount)):
			continue
		}
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("this machine allows no mount: what is left is the %s", limitFiles)
}

// disk is one that the test can fill, and give space again.
type disk struct {
	dir   string
	kind  string
	mib   int // how much fits
	fills int
}

func newDisk(t *testing.T, kind string) *disk {
	t.Helper()
	d := &disk{dir: t.TempDir(), kind: kind, mib: 2}
	if kind == limitFiles {
		return d
	}
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%dm", d.mib)),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(noMount)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil { // or the directory cannot go
			t.Error(err)
		}
	})
	return d
}

// fill leaves no space for one more page of the file. Every other time the limit
// is such that pages it already has cannot be written to either.
func (d *disk) fill(t *testing.T) {
	t.Helper()
	if d.kind == limitFiles {
		info, err := os.Stat(filepath.Join(d.dir, "kommit.db"))
		if err != nil {
			t.Fatal(err)
		}
		d.limit(t, uint64(info.Size())*uint64((d.fills+1)%2))
		d.fills++
		return
	}
	ballast, err := os.OpenFile(filepath.Join(d.dir, "ballast"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = ballast.Write(make([]byte, pageBytes))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	if err := ballast.Close(); err != nil {
		t.Fatal(err)
	}
}

// free gives the disk space again.
func (d *disk) free(t *testing.T) {
	t.Helper()
	if d.kind == limitFiles {
		d.limit(t, 1<<40)
		return
	}
	if err := os.Remove(filepath.Join(d.dir, "ballast")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// grow adds space that was not there before: twice as much, as bbolt grows a file
// by that when its pages are used up.
func (d *disk) grow(t *testing.T) {
	t.Helper()
	d.mib *= 2
	if d.kind == limitFiles {
		d.limit(t, uint64(d.mib)<<20)
		return
	}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%dm", d.mib)); err != nil {
		t.Fatal(err)
	}
}

// limit keeps this process, and those it starts, from writing files past size.
func (d *disk) limit(t *testing.T, size uint64) {
	t.Helper()
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		t.Fatal(err)
	}
	l.Cur = min(size, l.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		t.Fatal(err)
	}
}
