// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// update writes the sample of the current format, once, when there is a new one:
// go test ./pkg/storage/bolt -run TestSampleOfEachFormat -update
var update = flag.Bool("update", false, "write testdata/format<version>.db.gz")

func samplePath(version int) string {
	return filepath.Join("testdata", fmt.Sprintf("format%d.db.gz", version))
}

// writeSample makes a file with all that the format has: two resources, a
// history with deletions, a compacted part, a time to live, another package's
// bucket.
func writeSample(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sample.db")
	db := openDB(t, Config{Path: path})
	for _, gr := range []schema.GroupResource{pods, otherPods} {
		s := storeOf(t, db, gr)
		mustCreate(t, s, "a")       // 2
		mustCreate(t, s, "b")       // 3
		mustLabel(t, s, "a", "one") // 4
		if err := db.Compact(t.Context(), gr, 4); err != nil {
			t.Fatal(err)
		}
		mustLabel(t, s, "a", "two") // 5
		mustDelete(t, s, "b")       // 6
		const century = 100 * 365 * 24 * 60 * 60
		if err := s.Create(t.Context(), podKey("c"), pod("c"), nil, century); err != nil { // 7
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("journal"))
		if err != nil {
			return err
		}
		return b.Put([]byte("key"), []byte("value"))
	}), db.Close()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func storeOf(t *testing.T, db *DB, gr schema.GroupResource) *store {
	t.Helper()
	config := podStoreConfig()
	config.groupResource = gr
	s, err := db.newStore(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// F75: files of every format so far open, and read as they were written. The
// samples are never written again: they are what users have on their disks.
func TestSampleOfEachFormat(t *testing.T) {
	if *update {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(writeSample(t))
		if err := errors.Join(err, w.Close(), os.WriteFile(samplePath(formatVersion), b.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for version := 1; version <= formatVersion; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kommit.db")
			if err := os.WriteFile(path, readSample(t, version), 0o600); err != nil {
				t.Fatal(err)
			}
			readsLikeTheSample(t, path)
		})
	}
}

func readSample(t *testing.T, version int) []byte {
	t.Helper()
	f, err := os.Open(samplePath(version))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// readsLikeTheSample opens the file, at a time when its history is long past its
// age: nothing compacts it before a minute is over.
func readsLikeTheSample(t *testing.T, path string) {
	t.Helper()
	db := openDB(t, Config{Path: path})
	for _, gr := range []schema.GroupResource{pods, otherPods} {
		s := storeOf(t, db, gr)
		for rv, want := range map[string][]string{
			"":  {"a two 5", "c  7"},
			"7": {"a two 5", "c  7"},
			"6": {"a two 5"},
			"5": {"a two 5", "b  3"},
			"4": {"a one 4", "b  3"},
		} {
			opts := storage.ListOptions{}
			if rv != "" {
				opts = exactly(rv)
			}
			var got []string
			for _, p := range mustList(t, s, opts).Items {
				got = append(got, fmt.Sprintf("%s %s %s", p.Name, p.Labels["l"], p.ResourceVersion))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s at %q: %q, want %q", gr, rv, got, want)
			}
		}
		at := func(name, rv string) *example.Pod {
			return &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: rv}}
		}
		w := startWatch(t, s, storage.ListOptions{ResourceVersion: "4"})
		expect(t, w, watch.Modified, at("a", "5"))
		expect(t, w, watch.Deleted, at("b", "6"))
		expect(t, w, watch.Added, at("c", "7"))
		if e := <-startWatch(t, s, storage.ListOptions{ResourceVersion: "3"}).ResultChan(); e.Type != watch.Error {
			t.Errorf("%s: watch of what is compacted: %v", gr, e)
		}
		o, _, err := s.load(podKey("c"))
		if left := time.Until(time.Unix(0, o.expiry)); err != nil || o.expiry == 0 || left < 0 {
			t.Errorf("%s: c expires in %s, %v", gr, left, err)
		}
		if stats, _ := s.Stats(t.Context()); stats.ObjectCount != 2 || s.CompactRevision() != 4 {
			t.Errorf("%s: %d objects, compacted to %d", gr, stats.ObjectCount, s.CompactRevision())
		}
		expect(t, w, watch.Added, mustCreate(t, s, "new"))
	}
	if err := db.View(func(tx *bbolt.Tx) error {
		if got := tx.Bucket([]byte("journal")).Get([]byte("key")); string(got) != "value" {
			t.Errorf("another package's value is %q", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// What is written now is of the format that it says: it reads like its sample.
func TestCurrentFormatReadsLikeItsSample(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	if err := os.WriteFile(path, writeSample(t), 0o600); err != nil {
		t.Fatal(err)
	}
	readsLikeTheSample(t, path)
}

// A file of a newer format is refused before anything is written, its mode
// included.
func TestNewerFormatIsRefusedUnwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, _ := reopen(t, path)
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).Put(formatKey, binary.BigEndian.AppendUint64(nil, formatVersion+1))
	}), db.Close(), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	unchanged := watchFile(t, path)
	for range 2 {
		_, err := Open(t.Context(), Config{Path: path})
		var version *VersionError
		if !errors.As(err, &version) || version.Found != formatVersion+1 || version.Supported != formatVersion || version.Path != path {
			t.Fatalf("opening a newer file: %v, want a VersionError", err)
		}
	}
	unchanged()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v, want it as it was", info.Mode(), err)
	}
}
