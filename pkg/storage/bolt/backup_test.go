// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// D5: what was restored never shows an old resourceVersion again.
func TestBackupAndRestore(t *testing.T) {
	dir := t.TempDir()
	backup, restored := filepath.Join(dir, "backup.db"), filepath.Join(dir, "restored.db")
	db, s := reopen(t, filepath.Join(dir, "kommit.db"))
	a := mustCreate(t, s, "a")
	if err := db.Backup(backup); err != nil {
		t.Fatal(err)
	}
	if err := db.Backup(backup); !errors.Is(err, fs.ErrExist) {
		t.Errorf("backup over a file: %v", err)
	}
	lost := mustCreate(t, s, "lost")

	if err := Restore(backup, restored, time.Now()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(restored); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("restored file: %v, %v", info.Mode(), err)
	}
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

	if err := Restore(backup, restored, time.Now()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("restore over a file: %v", err)
	}
}
