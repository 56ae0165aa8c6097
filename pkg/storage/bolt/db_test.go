// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

func TestFirstRevisionIsNotZero(t *testing.T) {
	_, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	if rv := mustList(t, s, storage.ListOptions{}).ResourceVersion; rv != "1" {
		t.Errorf("empty list at resourceVersion %q, want 1", rv)
	}
}

func TestFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	openDB(t, Config{Path: path})
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o, want 600", mode)
	}
}

// D5: resourceVersions never go back, and clients resume where they were.
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, s := reopen(t, path)
	a, b := mustCreate(t, s, "a"), mustCreate(t, s, "b")
	a2 := mustLabel(t, s, "a", "2")
	b2 := mustDelete(t, s, "b")
	before := mustList(t, s, storage.ListOptions{}).ResourceVersion
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	db, s = reopen(t, path)
	if after := mustList(t, s, storage.ListOptions{}).ResourceVersion; after != before {
		t.Errorf("resourceVersion %s after the restart, %s before", after, before)
	}
	if list := mustList(t, s, exactly(b.ResourceVersion)); len(list.Items) != 2 || list.Items[0].ResourceVersion != a.ResourceVersion {
		t.Errorf("exact list of a revision before the restart: %+v", list.Items)
	}
	w := startWatch(t, s, storage.ListOptions{ResourceVersion: a.ResourceVersion})
	expect(t, w, watch.Added, b)
	expect(t, w, watch.Modified, a2)
	expect(t, w, watch.Deleted, b2)
	c := mustCreate(t, s, "c")
	expect(t, w, watch.Added, c)
	if revision(t, c) <= revision(t, b2) {
		t.Errorf("new resourceVersion %s, last one was %s", c.ResourceVersion, b2.ResourceVersion)
	}
	if stats, _ := s.Stats(t.Context()); stats.ObjectCount != 2 {
		t.Errorf("%d objects counted, want 2", stats.ObjectCount)
	}
	check(t, db)
}

func TestCompactRevisionSurvivesRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, s := reopen(t, path)
	a := mustCreate(t, s, "a")
	a2 := mustLabel(t, s, "a", "2")
	if err := db.Compact(t.Context(), pods, revision(t, a2)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, s = reopen(t, path)
	if got := s.CompactRevision(); got != int64(revision(t, a2)) {
		t.Errorf("CompactRevision() = %d, want %s", got, a2.ResourceVersion)
	}
	e := <-startWatch(t, s, storage.ListOptions{ResourceVersion: a.ResourceVersion}).ResultChan()
	if status, ok := e.Object.(*metav1.Status); !ok || status.Reason != metav1.StatusReasonExpired || status.Code != 410 {
		t.Errorf("watch from a compacted revision: %s %+v, want 410 Expired", e.Type, e.Object)
	}
}

func TestLockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	openDB(t, Config{Path: path})
	start := time.Now()
	_, err := Open(t.Context(), Config{Path: path, LockTimeout: 100 * time.Millisecond})
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Path != path {
		t.Fatalf("opening a locked file: %v, want a LockedError with its path", err)
	}
	if waited := time.Since(start); waited > 5*time.Second {
		t.Errorf("it took %s to say so", waited)
	}
}

func TestNewerFormatIsRefusedUnwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, _ := reopen(t, path)
	if err := db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).Put(formatKey, binary.BigEndian.AppendUint64(nil, formatVersion+1))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Config{Path: path})
	var version *VersionError
	if !errors.As(err, &version) || version.Found != formatVersion+1 {
		t.Fatalf("opening a newer file: %v, want a VersionError", err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the newer file was changed")
	}
}

func TestClosed(t *testing.T) {
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	mustCreate(t, s, "a")
	w := startWatch(t, s, storage.ListOptions{ResourceVersion: "1"})
	<-w.ResultChan()
	if err := db.Ready(); err != nil {
		t.Errorf("Ready() = %v while open", err)
	}
	if err := errors.Join(db.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if e, open := <-w.ResultChan(); open {
		t.Errorf("the watch got %v, want its end", e)
	}
	var closed *ClosedError
	for what, err := range map[string]error{
		"Ready":  db.Ready(),
		"Get":    s.Get(t.Context(), podKey("a"), storage.GetOptions{}, &example.Pod{}),
		"List":   s.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, &example.PodList{}),
		"Create": s.Create(t.Context(), podKey("b"), pod("b"), nil, 0),
		"Update": db.Update(func(*bbolt.Tx) error { return nil }),
	} {
		if !errors.As(err, &closed) {
			t.Errorf("%s after Close: %v, want a ClosedError", what, err)
		}
	}
}

// Same answer as behind etcd, so that moving there never fails on an object.
func TestObjectOverEtcdsLimit(t *testing.T) {
	_, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	for size, refused := range map[int]bool{1<<20 + 1<<18: false, 1536 << 10: true} {
		p := pod(fmt.Sprint(size))
		p.Annotations = map[string]string{"a": strings.Repeat("x", size)}
		if err := s.Create(t.Context(), podKey(p.Name), p, nil, 0); apierrors.IsRequestEntityTooLargeError(err) != refused || (err != nil) != refused {
			t.Errorf("%d bytes: %v, refused should be %v", size, err, refused)
		}
	}
}
