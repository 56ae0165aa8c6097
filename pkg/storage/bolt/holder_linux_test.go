// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// F64: the message names the process to stop.
func TestLockedErrorNamesTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	openDB(t, Config{Path: path})
	_, err := Open(t.Context(), Config{Path: path, LockTimeout: time.Millisecond})
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder != os.Getpid() {
		t.Errorf("%v, want that process %d has the file", err, os.Getpid())
	}
	if unseen := (&LockedError{Path: path}).Error(); !strings.Contains(unseen, "another process") {
		t.Errorf("a holder that cannot be seen: %s", unseen)
	}
	other := filepath.Join(t.TempDir(), "other.db")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if holder := lockHolder(other); holder != 0 {
		t.Errorf("process %d has a file that nobody locked", holder)
	}
}
