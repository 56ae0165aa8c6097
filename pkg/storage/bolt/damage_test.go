// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// D5, F68: whatever byte of whatever page is flipped, the file is refused, or
// what was hit is reported, or nothing was hit. Never a panic, a wrong value, a
// shorter list, a lost event.
func TestFlippedBytes(t *testing.T) {
	sp := newSpecimen(t)
	allowed := map[string]string{"meta": "refused harmless", "branch": "refused harmless", "leaf": "refused reported harmless", "free": "harmless"}
	seen := map[string]map[outcome]int{}
	for page, kind := range sp.kinds {
		if seen[kind] == nil {
			seen[kind] = map[outcome]int{}
		}
		for _, at := range flips(kind, page) {
			got, err := sp.flip(t, page*pageBytes+at, 1<<(at%8))
			if err != nil {
				t.Errorf("%s page %d, byte %d: %v", kind, page, at, err)
				continue
			}
			if !strings.Contains(allowed[kind], string(got)) {
				t.Errorf("%s page %d, byte %d: %s, allowed: %s", kind, page, at, got, allowed[kind])
			}
			seen[kind][got]++
		}
	}
	t.Log(seen)
	for kind, outcomes := range allowed {
		for o := range strings.FieldsSeq(outcomes) {
			if seen[kind][outcome(o)] == 0 {
				t.Errorf("no flip in a %s page was %s", kind, o)
			}
		}
	}
	if after, err := os.ReadFile(sp.path); err != nil || !bytes.Equal(after, sp.content) {
		t.Errorf("opening and reading has changed the file: %v", err)
	}
}

// flips are the bytes of a page to try: more where the structure is.
func flips(kind string, page int) []int {
	stride := map[string]int{"meta": 1021, "branch": 1021, "leaf": 509, "free": 2039}[kind]
	var at []int
	for i := page % stride; i < pageBytes; i += stride {
		at = append(at, i)
	}
	if kind != "free" {
		for i := page % 11; i < 80; i += 11 {
			at = append(at, i)
		}
	}
	return at
}

// A flipped page number may lead to the same page as it was some commits ago:
// all checksums are right, and acknowledged writes are gone.
func TestStalePage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db, s := reopen(t, path)
	for i := range 40 {
		mustCreate(t, s, fmt.Sprint(i))
	}
	before := leaves(t, db)
	mustLabel(t, s, "20", "acknowledged")
	after := leaves(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Put the page from before the write where the one from after it is.
	replaced := 0
	for first, id := range after {
		old, ok := before[first]
		if !ok || old == id {
			continue
		}
		copy(content[id*pageBytes+8:(id+1)*pageBytes], content[old*pageBytes+8:(old+1)*pageBytes])
		replaced++
	}
	if replaced != 1 {
		t.Fatalf("the write has replaced %d leaf pages of objects, want 1", replaced)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptFileError
	if _, err := Open(t.Context(), Config{Path: path}); !errors.As(err, &corrupt) {
		t.Errorf("a page from before the last write: %v, want a CorruptFileError", err)
	}
}

// leaves returns the leaf pages that hold objects of pods, by their first key.
func leaves(t *testing.T, db *DB) map[string]int {
	t.Helper()
	content, err := os.ReadFile(db.path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	if err := db.View(func(tx *bbolt.Tx) error {
		for id := 2; ; id++ {
			info, err := tx.Page(id)
			if err != nil || info == nil {
				return err
			}
			if info.Type != "leaf" || info.Count == 0 {
				continue
			}
			key, value, err := cut(content[id*pageBytes+pageHeader:], leafPage)
			if _, err2 := decodeObject(key, value); err == nil && err2 == nil {
				found[string(key)] = id
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// F68: cut short, with a tail of zeros, emptied, or another file altogether.
func TestBrokenFile(t *testing.T) {
	sp := newSpecimen(t)
	used := len(sp.kinds) * pageBytes
	type broken map[string][]byte
	files := broken{
		"text":               []byte(strings.Repeat("no database\n", 10000)),
		"a few bytes":        []byte("no"),
		"both metas cleared": append(make([]byte, 2*pageBytes), sp.content[2*pageBytes:]...),
		"all pages cleared":  append(bytes.Clone(sp.content[:2*pageBytes]), make([]byte, len(sp.content)-2*pageBytes)...),
	}
	for id, kind := range sp.kinds {
		at := id * pageBytes
		files[fmt.Sprintf("cut at page %d", id)] = sp.content[:at]
		files[fmt.Sprintf("cut in page %d", id)] = sp.content[:at+pageBytes/2]
		if kind != "free" {
			files[fmt.Sprintf("zero tail from %s page %d", kind, id)] = append(bytes.Clone(sp.content[:at]), make([]byte, len(sp.content)-at)...)
			files[fmt.Sprintf("zero %s page %d", kind, id)] = append(append(bytes.Clone(sp.content[:at]), make([]byte, pageBytes)...), sp.content[at+pageBytes:]...)
		}
	}
	delete(files, "cut at page 0") // that is an empty file
	for name, content := range files {
		if err := os.WriteFile(sp.path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), Config{Path: sp.path})
		var corrupt *CorruptFileError
		if !errors.As(err, &corrupt) || corrupt.Path != sp.path || corrupt.Status().Code != 503 {
			t.Errorf("%s: %v, want a CorruptFileError with its path, 503 for clients", name, err)
		}
		if after, err := os.ReadFile(sp.path); err != nil || !bytes.Equal(after, content) {
			t.Errorf("%s: the file was changed: %v", name, err)
		}
	}
	// Only what was never used may be missing.
	if err := os.WriteFile(sp.path, sp.content[:used], 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := sp.outcome(t); got != harmless {
		t.Errorf("without its unused end: %s, %v", got, err)
	}
}

// An empty file is a new one: who made it has not put anything in.
func TestEmptyFileIsNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, s := reopen(t, path)
	mustCreate(t, s, "a")
}

// A file of another program is not written to.
func TestForeignDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "foreign.db")
	file, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	}), file.Close()); err != nil {
		t.Fatal(err)
	}
	unchanged := watchFile(t, path)
	var corrupt *CorruptFileError
	if _, err := Open(t.Context(), Config{Path: path}); !errors.As(err, &corrupt) || corrupt.Path != path {
		t.Errorf("the database of another program: %v, want a CorruptFileError", err)
	}
	unchanged()
}

// watchFile fails the test if the file's bytes or its time have changed when the
// returned function is called.
func watchFile(t *testing.T, path string) (unchanged func()) {
	t.Helper()
	past := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(before, after) || !info.ModTime().Equal(past) {
			t.Errorf("%s was changed, at %s", path, info.ModTime())
		}
	}
}

// This package writes no list of free pages, but opens a file in which another
// program has left one (as bbolt's own compaction does), and does not believe a
// damaged one: it would overwrite what is live.
func TestListOfFreePages(t *testing.T) {
	sp := newSpecimen(t)
	file, err := bbolt.Open(sp.path, 0o600, nil) // with the list
	if err != nil {
		t.Fatal(err)
	}
	list, entries := -1, 0
	err = file.View(func(tx *bbolt.Tx) error {
		for id := 2; list < 0; id++ {
			page, err := tx.Page(id)
			if err != nil || page == nil {
				return errors.Join(err, errors.New("no list of free pages"))
			}
			if page.Type == "freelist" {
				list, entries = id, page.Count
			}
		}
		return nil
	})
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	if sp.content, err = os.ReadFile(sp.path); err != nil {
		t.Fatal(err)
	}
	if got, err := sp.outcome(t); got != harmless {
		t.Fatalf("a good list: %s, %v", got, err)
	}
	end := pageHeader + 8*entries
	for at := range end + 20 {
		want := map[bool]outcome{true: refused, false: harmless}[at < end]
		if got, err := sp.flip(t, list*pageBytes+at, 1<<(at%8)); got != want {
			t.Errorf("byte %d: %s, %v, want %s", at, got, err, want)
		}
	}
	db, s := reopen(t, sp.path)
	mustCreate(t, s, "new")
	check(t, db)
}

// What happens to the file under a running server is an error, not a crash.
func TestDamageWhileServing(t *testing.T) {
	for name, damage := range map[string]func(*os.File) error{
		"zeros": func(f *os.File) error { _, err := f.WriteAt(make([]byte, 30*pageBytes), 2*pageBytes); return err },
		"ones": func(f *os.File) error {
			_, err := f.WriteAt(bytes.Repeat([]byte{0xff}, 30*pageBytes), 2*pageBytes)
			return err
		},
		"cut short": func(f *os.File) error { return f.Truncate(2 * pageBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kommit.db")
			db, err := Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			s, err := db.newStore(podStoreConfig())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 30 {
				mustCreate(t, s, fmt.Sprint(i))
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(damage(f), f.Close()); err != nil {
				t.Fatal(err)
			}
			out := &example.Pod{}
			var corrupt *CorruptFileError
			for what, err := range map[string]error{
				"Get":    s.Get(t.Context(), podKey("3"), storage.GetOptions{}, out),
				"List":   s.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, &example.PodList{}),
				"Create": s.Create(t.Context(), podKey("new"), pod("new"), nil, 0),
				"Delete": s.Delete(t.Context(), podKey("3"), out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}),
				"Update": db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("own")); return err }),
				"Ready":  db.Ready(),
			} {
				if !errors.As(err, &corrupt) {
					t.Errorf("%s: %v, want a CorruptFileError", what, err)
				}
			}
		})
	}
}

func TestSpecimenHasEveryKindOfPage(t *testing.T) {
	sp := newSpecimen(t)
	kinds := map[string]int{}
	for kind := range maps.Values(sp.kinds) {
		kinds[kind]++
	}
	for _, kind := range []string{"meta", "branch", "leaf", "free"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s page: %v", kind, kinds)
		}
	}
}
