// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// descriptor is the file descriptor with which this process has path open.
func descriptor(t *testing.T, path string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == path {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			return fd
		}
	}
	t.Fatalf("%s is not open", path)
	return 0
}

// When the system does not map the grown file, nothing can be read: an error that
// says so, not "not found" and not an empty list. Here the kernel refuses because
// the descriptor has become one that is open for writing only.
func TestFileThatCannotBeMapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	s := storeOf(t, db, pods)
	mustCreate(t, s, "small")
	other, err := os.OpenFile(filepath.Join(t.TempDir(), "other"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Truncate(fileSize(t, path)), syscall.Dup3(int(other.Fd()), descriptor(t, path), syscall.O_CLOEXEC), other.Close()); err != nil {
		t.Fatal(err)
	}
	grow := func() error {
		p := pod("large")
		p.Annotations = map[string]string{"a": strings.Repeat("x", 1<<20)}
		return s.Create(t.Context(), podKey(p.Name), p, nil, 0)
	}
	var unmapped *UnmappedError
	for _, try := range []struct {
		what string
		err  error
	}{
		{"the write that grew it", grow()},
		{"Ready", db.Ready()},
		{"Get", s.Get(t.Context(), podKey("small"), storage.GetOptions{}, &example.Pod{})},
		{"Get of what is not there", s.Get(t.Context(), podKey("none"), storage.GetOptions{}, &example.Pod{})},
		{"List", listing(t.Context(), s, storage.ListOptions{})},
		{"another write", grow()},
		{"Ready after it", db.Ready()},
	} {
		if !errors.As(try.err, &unmapped) || unmapped.Status().Code != 503 {
			t.Errorf("%s: %v, want an UnmappedError, 503", try.what, try.err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, s = reopen(t, path)
	if got := fmt.Sprint(showList(mustList(t, s, storage.ListOptions{}))); got != "[small @2]" {
		t.Errorf("after a restart: %s, want what was acknowledged", got)
	}
	if err := grow(); err != nil {
		t.Error(err)
	}
	check(t, db)
}
