// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

func TestCorruptFile(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.db")
	db, s := reopen(t, good)
	for i := range 50 {
		mustCreate(t, s, fmt.Sprint(i))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for name, damage := range map[string]func([]byte) []byte{
		"not a database": func([]byte) []byte { return []byte(strings.Repeat("no", 10000)) },
		"both metas":     func(b []byte) []byte { clear(b[:2*page]); return b },
		"all pages":      func(b []byte) []byte { clear(b[2*page:]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.db")
			if err := os.WriteFile(path, damage(append([]byte(nil), content...)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), Config{Path: path})
			var corrupt *CorruptFileError
			if !errors.As(err, &corrupt) || corrupt.Path != path {
				t.Fatalf("opening a damaged file: %v, want a CorruptFileError", err)
			}
			if code := corrupt.Status().Code; code != 503 {
				t.Errorf("clients get %d, want 503", code)
			}
		})
	}
}

// Whatever byte is flipped: the file is refused, or what was hit is reported, or
// nothing was hit. Never a panic, a wrong value, or a shorter list.
func TestFlippedBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, s := reopen(t, path)
	const objects = 40
	for i := range objects {
		mustCreate(t, s, fmt.Sprint(i))
		mustLabel(t, s, fmt.Sprint(i), strings.Repeat("v", 60))
	}
	want := mustList(t, s, storage.ListOptions{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content = bytes.TrimRight(content, "\x00")
	var refused, reported, harmless int
	for at := 0; at < len(content); at += 193 { // a prime, so that all fields are hit
		damaged := bytes.Clone(content)
		damaged[at] ^= 0x15
		bad := filepath.Join(t.TempDir(), "bad.db")
		if err := os.WriteFile(bad, append(damaged, make([]byte, 2*os.Getpagesize())...), 0o600); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptFileError
		db, err := Open(t.Context(), Config{Path: bad})
		if err != nil {
			if refused++; !errors.As(err, &corrupt) {
				t.Fatalf("byte %d: %v, want a CorruptFileError", at, err)
			}
			continue
		}
		s, err := db.newStore(podStoreConfig())
		got := &example.PodList{}
		if err == nil {
			err = s.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, got)
		}
		switch {
		case errors.As(err, &corrupt):
			reported++
		case err != nil:
			t.Errorf("byte %d: %v", at, err)
		case !reflect.DeepEqual(got, want):
			t.Errorf("byte %d: another list: %d items at %s", at, len(got.Items), got.ResourceVersion)
		default:
			harmless++ // a free page, or history
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("refused %d, reported %d, harmless %d", refused, reported, harmless)
	if refused == 0 || reported == 0 || harmless == 0 {
		t.Error("the test does not reach every outcome")
	}
}
