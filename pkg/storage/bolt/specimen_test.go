// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

const pageBytes = 4096 // of the files that these tests damage

// specimen is a file with two resources, branch pages, a history with deletions,
// and times to live; and all that can be read in it.
type specimen struct {
	path     string
	content  []byte
	kinds    map[int]string // page → what it is
	readings map[string]any
}

const specimenObjects = 20 // of each resource

// observe is one way to read a file.
type observe func() (any, error)

// observations are all that clients can see of the two resources.
func observations(t *testing.T, db *DB) (map[string]observe, error) {
	all := map[string]observe{}
	for _, gr := range []schema.GroupResource{pods, otherPods} {
		config := podStoreConfig()
		config.groupResource = gr
		s, err := db.newStore(config)
		if err != nil {
			return nil, err
		}
		list := func(opts storage.ListOptions) observe {
			return func() (any, error) {
				out := &example.PodList{}
				opts.Recursive, opts.Predicate = true, storage.Everything
				return out, s.GetList(t.Context(), "/pods/", opts, out)
			}
		}
		all[gr.Resource+" newest"] = list(storage.ListOptions{})
		for _, rev := range []int{10, 25, 40} {
			all[fmt.Sprintf("%s at %d", gr.Resource, rev)] = list(exactly(fmt.Sprint(rev)))
		}
		for i := range specimenObjects {
			all[fmt.Sprintf("%s get %d", gr.Resource, i)] = func() (any, error) {
				out := &example.Pod{}
				err := s.Get(t.Context(), podKey(fmt.Sprint(i)), storage.GetOptions{IgnoreNotFound: true}, out)
				return out, err
			}
		}
		all[gr.Resource+" events"] = func() (any, error) {
			var seen []string
			err := s.resource.read(0, func(v *view) error {
				events, upTo, err := v.events(10, 1<<30)
				for _, e := range events {
					if !e.deleted && err == nil {
						err = s.intact(e.value, e.rev)
					}
					seen = append(seen, fmt.Sprintf("%d %s %t %t %x", e.rev, e.key, e.created, e.deleted, checksum(e.value, e.prevValue)))
				}
				seen = append(seen, fmt.Sprint(upTo))
				return err
			})
			return seen, err
		}
		all[gr.Resource+" statistics"] = func() (any, error) {
			stats, err := s.Stats(t.Context())
			return stats, err
		}
	}
	all["times to live"] = func() (any, error) {
		var entries []string
		err := db.read(func(tx *bbolt.Tx) error {
			return tx.Bucket(expiryBucket).ForEach(func(k, _ []byte) error {
				entries = append(entries, string(k))
				return nil
			})
		})
		return entries, err
	}
	return all, nil
}

var otherPods = schema.GroupResource{Group: "example.com", Resource: "otherpods"}

func newSpecimen(t *testing.T) *specimen {
	t.Helper()
	sp := &specimen{path: filepath.Join(t.TempDir(), "kommit.db"), kinds: map[int]string{}, readings: map[string]any{}}
	db := openDB(t, Config{Path: sp.path})
	for _, gr := range []schema.GroupResource{pods, otherPods} {
		config := podStoreConfig()
		config.groupResource = gr
		s, err := db.newStore(config)
		if err != nil {
			t.Fatal(err)
		}
		for i := range specimenObjects {
			mustCreate(t, s, fmt.Sprint(i))
			mustLabel(t, s, fmt.Sprint(i), strings.Repeat("v", 200))
		}
		mustDelete(t, s, "7")
		if err := s.Create(t.Context(), podKey("short-lived"), pod("short-lived"), nil, 86400); err != nil {
			t.Fatal(err)
		}
		if err := db.Compact(t.Context(), gr, 10); err != nil {
			t.Fatal(err)
		}
	}
	all, err := observations(t, db)
	if err != nil {
		t.Fatal(err)
	}
	for what, read := range all {
		if sp.readings[what], err = read(); err != nil {
			t.Fatalf("%s of a good file: %v", what, err)
		}
	}
	if err := db.View(func(tx *bbolt.Tx) error {
		for id := 0; ; id++ {
			page, err := tx.Page(id)
			if err != nil || page == nil {
				return err
			}
			for i := range page.OverflowCount + 1 {
				sp.kinds[id+i] = page.Type
			}
			id += page.OverflowCount
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if sp.content, err = os.ReadFile(sp.path); err != nil {
		t.Fatal(err)
	}
	return sp
}

// outcome is what comes of a damaged file.
type outcome string

const (
	refused  outcome = "refused"  // by Open, with a reason
	reported outcome = "reported" // by at least one reading; all others are right
	harmless outcome = "harmless" // every reading is right
)

// outcome opens the file as it is now and reads all of it. A reading is right or
// a typed error.
func (sp *specimen) outcome(t *testing.T) (outcome, error) {
	var corrupt *CorruptFileError
	var version *VersionError
	var object *CorruptObjectError
	db, err := Open(t.Context(), Config{Path: sp.path})
	if errors.As(err, &corrupt) || errors.As(err, &version) {
		return refused, nil
	}
	if err != nil {
		return "", fmt.Errorf("Open: %w", err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	all, err := observations(t, db)
	if err != nil {
		return "", fmt.Errorf("a store on it: %w", err)
	}
	result := harmless
	for what, read := range all {
		got, err := read()
		switch {
		case errors.As(err, &corrupt), errors.As(err, &object), apierrors.ReasonForError(err) == metav1.StatusReasonStoreReadError:
			result = reported
		case err != nil:
			return "", fmt.Errorf("%s: %w", what, err)
		case !reflect.DeepEqual(got, sp.readings[what]):
			return "", fmt.Errorf("%s is %.300v, was %.300v", what, got, sp.readings[what])
		}
	}
	return result, nil
}

// flip changes one byte of the file, and back when done.
func (sp *specimen) flip(t *testing.T, at int, mask byte) (outcome, error) {
	t.Helper()
	f, err := os.OpenFile(sp.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, err := f.WriteAt(sp.content[at:at+1], int64(at))
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}()
	if _, err := f.WriteAt([]byte{sp.content[at] ^ mask}, int64(at)); err != nil {
		t.Fatal(err)
	}
	return sp.outcome(t)
}
