// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.etcd.io/bbolt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// saveSnapshot writes a backup of db into dir.
func saveSnapshot(t *testing.T, db *DB, dir string) string {
	t.Helper()
	snapshot, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	path := filepath.Join(dir, "backup.db")
	if err := SaveBackup(path, snapshot); err != nil {
		t.Fatal(err)
	}
	return path
}

// onlyFiles fails unless dir holds these and nothing else.
func onlyFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}

// D5: what was restored never shows an old resourceVersion again.
func TestBackupAndRestore(t *testing.T) {
	dir := t.TempDir()
	restored := filepath.Join(dir, "restored.db")
	db, s := reopen(t, filepath.Join(dir, "kommit.db"))
	a := mustCreate(t, s, "a")
	backup := saveSnapshot(t, db, dir)
	lost := mustCreate(t, s, "lost")

	if err := Restore(backup, restored, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{backup, restored} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	onlyFiles(t, dir, "backup.db", "kommit.db", "restored.db")
	_, r := reopen(t, restored)
	list := mustList(t, r, storage.ListOptions{})
	if len(list.Items) != 1 || list.Items[0].ResourceVersion != a.ResourceVersion {
		t.Errorf("restored: %+v", list.Items)
	}
	at, err := r.GetCurrentResourceVersion(t.Context())
	if err != nil || at <= revision(t, lost) {
		t.Errorf("at %d, %v: not above the lost %s", at, err, lost.ResourceVersion)
	}
	e := <-startWatch(t, r, storage.ListOptions{ResourceVersion: lost.ResourceVersion}).ResultChan()
	if status, ok := e.Object.(*metav1.Status); !ok || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("watch from before: %s %+v, want Expired", e.Type, e.Object)
	}
	if err := r.GetList(t.Context(), "/pods/", storage.ListOptions{
		Recursive: true, Predicate: storage.Everything, ResourceVersion: a.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}, &example.PodList{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("exact list from before: %v, want Expired", err)
	}
	w := startWatch(t, r, storage.ListOptions{ResourceVersion: list.ResourceVersion})
	expect(t, w, watch.Modified, mustLabel(t, r, "a", "new"))
	expect(t, w, watch.Added, mustCreate(t, r, "lost"))
}

// Neither a backup nor a restore takes the place of a file, and one that fails
// leaves none.
func TestBackupsOverwriteNothing(t *testing.T) {
	dir := t.TempDir()
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	mustCreate(t, s, "a")
	backup := saveSnapshot(t, db, dir)
	occupied := filepath.Join(dir, "occupied.db")
	if err := os.WriteFile(occupied, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("connection reset")
	for name, test := range map[string]struct {
		err  error
		want error
	}{
		"restore over a file":   {Restore(backup, occupied, time.Now()), fs.ErrExist},
		"backup over a file":    {SaveBackup(occupied, strings.NewReader("")), fs.ErrExist},
		"half a backup":         {SaveBackup(filepath.Join(dir, "half.db"), iotest.ErrReader(broken)), broken},
		"restore of no file":    {Restore(filepath.Join(dir, "none.db"), filepath.Join(dir, "new.db"), time.Now()), fs.ErrNotExist},
		"restore to nowhere":    {Restore(backup, filepath.Join(dir, "none", "new.db"), time.Now()), fs.ErrNotExist},
		"backup of nothing":     {SaveBackup(filepath.Join(dir, "empty.db"), strings.NewReader("")), &CorruptFileError{}},
		"backup of a web page":  {SaveBackup(filepath.Join(dir, "page.db"), strings.NewReader(strings.Repeat("<html>", 9999))), &CorruptFileError{}},
		"restore of not a file": {Restore(dir, filepath.Join(dir, "new.db"), time.Now()), nil},
	} {
		var corrupt *CorruptFileError
		_, wantsCorrupt := test.want.(*CorruptFileError) //nolint:errorlint // a marker in this table
		switch {
		case test.err == nil:
			t.Errorf("%s: succeeded", name)
		case wantsCorrupt && !errors.As(test.err, &corrupt), !wantsCorrupt && test.want != nil && !errors.Is(test.err, test.want):
			t.Errorf("%s: %v, want %T %v", name, test.err, test.want, test.want)
		}
	}
	onlyFiles(t, dir, "backup.db", "occupied.db")
	if content, err := os.ReadFile(occupied); err != nil || string(content) != "mine" {
		t.Errorf("the occupied file holds %q, %v", content, err)
	}
}

// A backup is good or refused: whatever byte of what is live is hit.
func TestCheckBackupReadsEveryValue(t *testing.T) {
	dir := t.TempDir()
	db, s := reopen(t, filepath.Join(dir, "kommit.db"))
	mustCreate(t, s, "a")
	mustLabel(t, s, "a", "replaced-value")
	mustLabel(t, s, "a", "current-value")
	good, err := os.ReadFile(saveSnapshot(t, db, dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"an object":    func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("current-value"), []byte("current-valve")) },
		"a log record": func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("replaced-value"), []byte("replaced-valve")) },
		"cut short":    func(b []byte) []byte { return b[:len(b)/2] },
		"the newest meta": func(b []byte) []byte {
			clear(b[:2*os.Getpagesize()])
			return b
		},
	} {
		bad := damage(bytes.Clone(good))
		if bytes.Equal(bad, good) {
			t.Fatalf("%s: the test damages nothing", name)
		}
		var corrupt *CorruptFileError
		if err := SaveBackup(filepath.Join(dir, "bad.db"), bytes.NewReader(bad)); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v, want a CorruptFileError", name, err)
		}
	}
	if err := SaveBackup(filepath.Join(dir, "again.db"), bytes.NewReader(good)); err != nil {
		t.Errorf("undamaged: %v", err)
	}
}

func TestBackupOfANewerVersion(t *testing.T) {
	dir := t.TempDir()
	db, _ := reopen(t, filepath.Join(dir, "kommit.db"))
	backup := saveSnapshot(t, db, dir)
	file, err := bbolt.Open(backup, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).Put(formatKey, binary.BigEndian.AppendUint64(nil, formatVersion+1))
	}), file.Close()); err != nil {
		t.Fatal(err)
	}
	var version *VersionError
	if err := Restore(backup, filepath.Join(dir, "restored.db"), time.Now()); !errors.As(err, &version) || version.Found != formatVersion+1 {
		t.Errorf("restore: %v, want a VersionError", err)
	}
	onlyFiles(t, dir, "backup.db", "kommit.db")
}

// What is free in the file, or history, is not in a restored one.
func TestRestoreLeavesOutWhatIsNotLive(t *testing.T) {
	dir := t.TempDir()
	restored := filepath.Join(dir, "restored.db")
	db, s := reopen(t, filepath.Join(dir, "kommit.db"))
	for i := range 200 {
		mustCreate(t, s, fmt.Sprint(i))
		mustLabel(t, s, fmt.Sprint(i), strings.Repeat("from-the-past", 100))
		mustLabel(t, s, fmt.Sprint(i), "now")
	}
	at, err := s.GetCurrentResourceVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(t.Context(), pods, at-1); err != nil { // the last value is then history, others are free pages
		t.Fatal(err)
	}
	backup := saveSnapshot(t, db, dir)
	if err := Restore(backup, restored, time.Now()); err != nil {
		t.Fatal(err)
	}
	contents := map[string][]byte{}
	for _, path := range []string{backup, restored} {
		if contents[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Contains(contents[backup], []byte("from-the-past")) {
		t.Fatal("the backup's free pages hold nothing: the test proves nothing")
	}
	if bytes.Contains(contents[restored], []byte("from-the-past")) {
		t.Error("the restored file holds a value that is not live")
	}
	if len(contents[restored]) > len(contents[backup])/2 {
		t.Errorf("restored %d bytes of a backup of %d", len(contents[restored]), len(contents[backup]))
	}
	_, r := reopen(t, restored)
	if list := mustList(t, r, storage.ListOptions{}); len(list.Items) != 200 {
		t.Errorf("restored %d objects, want 200", len(list.Items))
	}
	check(t, r.resource.db)
}

// A snapshot is of one moment, whatever is written meanwhile, and has no name.
func TestSnapshotIsOfOneMoment(t *testing.T) {
	dir := t.TempDir()
	db, s := reopen(t, filepath.Join(dir, "kommit.db"))
	mustCreate(t, s, "before")
	snapshot, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	onlyFiles(t, dir, "kommit.db")
	for i := range 100 {
		mustCreate(t, s, fmt.Sprint(i))
	}
	if err := db.Close(); err != nil { // a snapshot outlives its database
		t.Fatal(err)
	}
	size, err := snapshot.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		t.Fatalf("%d bytes, %v", size, err)
	}
	if _, err := snapshot.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(dir, "backup.db")
	if err := SaveBackup(backup, snapshot); err != nil {
		t.Fatal(err)
	}
	_, b := reopen(t, backup)
	if list := mustList(t, b, storage.ListOptions{}); len(list.Items) != 1 || list.Items[0].Name != "before" {
		t.Errorf("the snapshot holds %d objects, want the one from before", len(list.Items))
	}
	if _, err := db.Snapshot(); !errors.As(err, new(*ClosedError)) {
		t.Errorf("after Close: %v, want a ClosedError", err)
	}
}
