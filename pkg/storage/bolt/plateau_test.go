// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// putAll writes values of the given sizes in one commit; 0 deletes.
func putAll(t *testing.T, db *DB, s *store, sizes map[string]int) {
	t.Helper()
	if err := db.submit(0, func(b *batch) error {
		p, err := b.resource(s.resource)
		if err != nil {
			return err
		}
		for name, size := range sizes {
			old, err := p.current(podKey(name))
			switch {
			case err != nil:
			case size == 0:
				_, err = p.delete(podKey(name), old.rev)
			default:
				_, err = p.put(podKey(name), make([]byte, size), old.rev, 0)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// F66: the file never shrinks, and under a churn of updates, with its history
// compacted, it does not grow for ever either.
func TestFileReachesAPlateau(t *testing.T) {
	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	random := rand.New(rand.NewPCG(1, 2))
	pages := func() int64 {
		statistics, err := db.Statistics()
		if err != nil {
			t.Fatal(err)
		}
		return statistics.FileBytes / int64(statistics.PageBytes)
	}
	// Each round is 4 commits of 50 updates, of up to two pages each.
	rounds := func(n int) {
		for range n {
			for range 4 {
				sizes := map[string]int{}
				for range 50 {
					sizes[fmt.Sprint(random.IntN(100))] = 100 + random.IntN(8000)
				}
				putAll(t, db, s, sizes)
			}
			if rev := s.resource.feed.revision(); rev > 400 {
				if err := db.Compact(t.Context(), pods, rev-400); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	const n = 25
	rounds(n)
	once := pages()
	rounds(2 * n)
	thrice := pages()
	// What is live differs by chance from round to round, the file only has
	// room for the most there was.
	if thrice > once+once/10 {
		t.Errorf("%d pages after %d rounds, %d after %d", once, n, thrice, 3*n)
	}
	t.Logf("%d pages after %d rounds, %d after %d", once, n, thrice, 3*n)
}

// F65: what a commit writes does not grow with the list of free pages.
func TestCommitAfterAPurge(t *testing.T) {
	// writes is how many pages a lone update makes bbolt write.
	writes := func(db *DB, s *store) int64 {
		putAll(t, db, s, map[string]int{"kept": 100})
		before := db.bolt.Stats()
		putAll(t, db, s, map[string]int{"kept": 100})
		after := db.bolt.Stats()
		return after.TxStats.GetPageCount() - before.TxStats.GetPageCount()
	}
	small, s := reopen(t, filepath.Join(t.TempDir(), "small.db"))
	want := writes(small, s)

	db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	for _, size := range []int{6000, 0} {
		for batch := range 20 {
			sizes := map[string]int{}
			for i := range 200 {
				sizes[fmt.Sprintf("%d-%d", batch, i)] = size
			}
			putAll(t, db, s, sizes)
		}
	}
	if err := db.Compact(t.Context(), pods, s.resource.feed.revision()); err != nil {
		t.Fatal(err)
	}
	got := writes(db, s)
	statistics, err := db.Statistics()
	if err != nil {
		t.Fatal(err)
	}
	// A list of 512 free pages fills a page; it would be written each time.
	if lists := statistics.FreePages / 512; lists < 10 {
		t.Errorf("%d free pages only: the test shows nothing", statistics.FreePages)
	}
	if got > want+2 {
		t.Errorf("an update writes %d pages with %d free ones, %d in a small file", got, statistics.FreePages, want)
	}
	t.Logf("an update writes %d pages with %d free ones, %d in a small file", got, statistics.FreePages, want)
}
