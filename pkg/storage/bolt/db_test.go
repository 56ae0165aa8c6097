// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
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

// F63, F64: while another process has the file, opening it fails within its
// timeout, as often as it is tried, and changes nothing. The other one goes on.
func TestLockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	holder := startChild(t, "hold", path)
	if line, _ := holder.line(); line != "open" {
		t.Fatalf("the holder says %q", line)
	}
	unchanged := watchFile(t, path)
	for range 3 {
		synctest.Test(t, func(t *testing.T) { // its clock shows how long was waited
			start := time.Now()
			_, err := Open(t.Context(), Config{Path: path})
			var locked *LockedError
			if !errors.As(err, &locked) || locked.Path != path {
				t.Fatalf("opening a locked file: %v, want a LockedError with its path", err)
			}
			if waited := time.Since(start); waited == 0 || waited > lockTimeout {
				t.Errorf("it took %s to say so, want at most %s", waited, lockTimeout)
			}
		})
	}
	unchanged()
	if err := holder.stdin.Close(); err != nil { // now it writes, and ends
		t.Fatal(err)
	}
	if err := holder.cmd.Wait(); err != nil {
		t.Fatalf("the holder: %v", err)
	}
	_, s := reopen(t, path)
	if list := mustList(t, s, storage.ListOptions{}); len(list.Items) != 1 || list.Items[0].Name != "held" {
		t.Errorf("found %v, want what the holder has written", list.Items)
	}
}

// A process that was killed leaves no lock behind.
func TestLockOfAKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	holder := startChild(t, "hold", path)
	if line, _ := holder.line(); line != "open" {
		t.Fatalf("the holder says %q", line)
	}
	holder.kill()
	holder.wait()
	_, s := reopen(t, path)
	mustCreate(t, s, "a")
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
