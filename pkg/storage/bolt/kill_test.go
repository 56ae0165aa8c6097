// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"path/filepath"
	"testing"

	"k8s.io/apiserver/pkg/storage"
)

// D4 at kill -9: what was acknowledged is there, and nothing is half there.
func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	acknowledged, last := map[string]string{}, uint64(0)
	for round := range 3 { // each on what the last one has left
		c := startChild(t, "write", path)
		got, refused := c.outcomes(func(acknowledged, _ int) {
			if acknowledged == 100 {
				c.kill()
			}
		})
		if len(got) < 100 || len(refused) > 0 {
			t.Fatalf("round %d: %d writes were acknowledged, %d refused", round, len(got), len(refused))
		}
		db, s := reopen(t, path)
		check(t, db)
		last = checkAcknowledged(t, s, acknowledged, got, last)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkAcknowledged adds the newly acknowledged writes to all, and compares with
// what is there. Every revision is used once: none of the new ones is at or below
// before. It returns the current one.
func checkAcknowledged(t *testing.T, s *store, all, acknowledged map[string]string, before uint64) uint64 {
	t.Helper()
	versions := map[string]string{}
	for _, rv := range all {
		versions[rv] = "an earlier write"
	}
	for name, rv := range acknowledged {
		if other, used := versions[rv]; used {
			t.Errorf("resourceVersion %s was given to %s and to %s", rv, other, name)
		}
		versions[rv], all[name] = name, rv
		if rev, err := s.versioner.ParseResourceVersion(rv); err != nil || rev <= before {
			t.Errorf("%s got resourceVersion %s, %d was current already", name, rv, before)
		}
	}
	found := map[string]string{}
	list := mustList(t, s, storage.ListOptions{})
	for _, p := range list.Items {
		found[p.Name] = p.ResourceVersion
	}
	for name, rv := range all {
		if found[name] != rv {
			t.Errorf("%s was acknowledged at %s, found %q", name, rv, found[name])
		}
	}
	current, err := s.versioner.ParseResourceVersion(list.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return current
}
