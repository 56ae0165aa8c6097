// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// TestFullDisk is all that has to be true where files cannot grow. It runs in
// another process for each kind of full disk.
func TestFullDisk(t *testing.T) {
	kind := os.Getenv(diskKind)
	if kind == "" {
		for _, kind := range []string{smallDisk, limitFiles} {
			t.Run(kind, func(t *testing.T) { startOnFullDisk(t, kind) })
		}
		return
	}
	for _, test := range []struct {
		name  string
		kinds string
		run   func(*testing.T, *disk)
	}{
		{"WritesAreRefusedAndReadsGoOn", smallDisk + limitFiles, testWritesAreRefused},
		{"WritesGoOnWithFreePages", smallDisk + limitFiles, testWritesGoOnWithFreePages},
		{"Killed", smallDisk + limitFiles, testKilledOnFullDisk},
		{"FailedCompactionIsTriedAgain", limitFiles, testFailedCompaction},
	} {
		if strings.Contains(test.kinds, kind) {
			t.Run(test.name, func(t *testing.T) { test.run(t, newDisk(t, kind)) })
		}
	}
}

// answers is what a test was answered.
type answers struct {
	mu           sync.Mutex // protects all below
	acknowledged map[string]string
	refused      map[string]bool
	events       []string // of acknowledged writes
}

func (seen *answers) event(kind string, p *example.Pod) {
	seen.events = append(seen.events, fmt.Sprintf("%s %s@%s", kind, p.Name, p.ResourceVersion))
}

// create makes an object of about 8 KiB and reports whether it was acknowledged.
// Any other answer is that the disk is full, with the reason and 507.
func (seen *answers) create(t *testing.T, s *store, name string) bool {
	p, out := pod(name), &example.Pod{}
	p.Annotations = map[string]string{"a": strings.Repeat("x", 8<<10)}
	err := s.Create(t.Context(), podKey(name), p, out, 0)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if err != nil {
		mustBeFull(t, "create", err)
		seen.refused[name] = true
		return false
	}
	seen.acknowledged[name] = out.ResourceVersion
	seen.event("ADDED", out)
	return true
}

func mustBeFull(t *testing.T, what string, err error) {
	t.Helper()
	var full *DiskFullError
	var errno syscall.Errno
	if !errors.As(err, &full) || full.Status().Code != 507 || !errors.As(err, &errno) {
		t.Errorf("%s on a full disk: %v, want a DiskFullError with the system's reason", what, err)
	}
}

// check compares the store with the answers.
func (seen *answers) check(t *testing.T, s *store) {
	t.Helper()
	found := map[string]string{}
	for _, p := range mustList(t, s, storage.ListOptions{}).Items {
		found[p.Name] = p.ResourceVersion
	}
	if !maps.Equal(found, seen.acknowledged) {
		t.Errorf("there are %d objects, %d writes were acknowledged:\n%v\n%v", len(found), len(seen.acknowledged), found, seen.acknowledged)
	}
	for name := range seen.refused {
		if err := s.Get(t.Context(), podKey(name), storage.GetOptions{}, &example.Pod{}); !storage.IsNotFound(err) {
			t.Errorf("%s was refused, and there is: %v", name, err)
		}
	}
	w := startWatch(t, s, storage.ListOptions{ResourceVersion: "1"})
	defer w.Stop()
	slices.SortFunc(seen.events, func(a, b string) int { return int(version(t, a)) - int(version(t, b)) })
	for i, want := range seen.events {
		e := <-w.ResultChan()
		p := sentPod(e)
		if p == nil {
			t.Fatalf("event %d of %d is %s %v, want %s", i, len(seen.events), e.Type, e.Object, want)
		}
		if got := fmt.Sprintf("%s %s@%s", e.Type, p.GetName(), p.GetResourceVersion()); got != want {
			t.Fatalf("event %d is %s, want %s", i, got, want)
		}
		if at := version(t, want); at != uint64(i)+2 {
			t.Fatalf("event %d is at %d: a refused write has used up a revision", i, at)
		}
	}
}

func version(t *testing.T, event string) uint64 {
	t.Helper()
	return revision(t, &metav1.ObjectMeta{ResourceVersion: event[strings.LastIndexByte(event, '@')+1:]})
}

// D5, F69: on a full disk writes answer 507 with the reason and are not made,
// reads and watches go on, and when there is space again so do writes, without
// opening the file again. Over several cycles, and at a restart after them.
func testWritesAreRefused(t *testing.T, d *disk) {
	path := filepath.Join(d.dir, "kommit.db")
	db, s := reopen(t, path)
	running := startWatch(t, s, storage.ListOptions{ResourceVersion: "1"})
	seen := &answers{acknowledged: map[string]string{}, refused: map[string]bool{}}
	for cycle := range 4 {
		for i := range 10 {
			if !seen.create(t, s, fmt.Sprintf("space-%d-%d", cycle, i)) {
				t.Fatalf("cycle %d: create with space failed", cycle)
			}
		}
		if err := db.Ready(); err != nil {
			t.Errorf("cycle %d: Ready() = %v with space", cycle, err)
		}

		d.fill(t)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i, failures := 0, 0; failures < 5; i++ {
					if !seen.create(t, s, fmt.Sprintf("full-%d-%d-%d", cycle, w, i)) {
						failures++
					}
				}
			})
		}
		wg.Wait()
		for i := 0; seen.create(t, s, fmt.Sprintf("last-%d-%d", cycle, i)); i++ {
		}
		var full *DiskFullError
		if err := errors.Join(db.Ready(), s.ReadinessCheck()); !errors.As(err, &full) {
			t.Errorf("cycle %d: Ready() = %v after a refused write", cycle, err)
		}
		seen.check(t, s)
		deleted := seen.delete(t, s, fmt.Sprintf("space-%d-3", cycle))
		if nothingFits := d.kind == limitFiles && cycle%2 == 1; deleted && nothingFits {
			t.Errorf("cycle %d: deleted without writing a page", cycle)
		}
		seen.update(t, s, fmt.Sprintf("space-%d-4", cycle))
		seen.check(t, s)
		check(t, db)
		t.Logf("cycle %d: %d acknowledged, %d refused, deleted while full: %t", cycle, len(seen.acknowledged), len(seen.refused), deleted)

		d.free(t)
		if !seen.create(t, s, fmt.Sprintf("again-%d", cycle)) {
			t.Errorf("cycle %d: create failed when there was space again", cycle)
		}
		if err := db.Ready(); err != nil {
			t.Errorf("cycle %d: Ready() = %v when there was space again", cycle, err)
		}
		seen.check(t, s)
		check(t, db)
	}
	for i, want := range seen.events { // the watch that was there all the time
		e := <-running.ResultChan()
		p := sentPod(e)
		if p == nil || p.ResourceVersion != fmt.Sprint(version(t, want)) {
			t.Fatalf("event %d of the running watch: %s %v, want %s", i, e.Type, e.Object, want)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, s = reopen(t, path)
	seen.check(t, s)
	check(t, db)
}

// delete is a write like any other: it needs pages until its commit is done, and
// keeps the object in the history. With free pages in the file it goes through on
// a full disk, else it is refused; either way it is what it says.
func (seen *answers) delete(t *testing.T, s *store, name string) bool {
	t.Helper()
	out := &example.Pod{}
	err := s.Delete(t.Context(), podKey(name), out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	if err != nil {
		mustBeFull(t, "delete", err)
		return false
	}
	delete(seen.acknowledged, name)
	seen.event("DELETED", out)
	return true
}

func (seen *answers) update(t *testing.T, s *store, name string) {
	t.Helper()
	out := &example.Pod{}
	err := s.GuaranteedUpdate(t.Context(), podKey(name), out, false, nil, labelled("on a full disk"), nil)
	if err != nil {
		mustBeFull(t, "update", err)
		return
	}
	seen.acknowledged[name] = out.ResourceVersion
	seen.event("MODIFIED", out)
}

// When the file itself has pages free, because compaction has dropped history,
// a full disk refuses nobody.
func testWritesGoOnWithFreePages(t *testing.T, d *disk) {
	db, s := reopen(t, filepath.Join(d.dir, "kommit.db"))
	seen := &answers{acknowledged: map[string]string{}, refused: map[string]bool{}}
	for i := range 40 {
		seen.create(t, s, fmt.Sprint(i))
	}
	for i := range 20 {
		mustDelete(t, s, fmt.Sprint(i))
	}
	if err := db.Compact(t.Context(), pods, s.resource.feed.revision()); err != nil {
		t.Fatal(err)
	}
	d.fill(t)
	for i := 20; i < 30; i++ {
		mustDelete(t, s, fmt.Sprint(i))
	}
	if err := db.Ready(); err != nil {
		t.Errorf("Ready() = %v", err)
	}
	if list := mustList(t, s, storage.ListOptions{}); len(list.Items) != 10 {
		t.Errorf("%d objects left, want 10", len(list.Items))
	}
}

// D4, D5: kill -9 on a full disk, then a restart with more space, several times.
func testKilledOnFullDisk(t *testing.T, d *disk) {
	path := filepath.Join(d.dir, "kommit.db")
	all, before := map[string]string{}, uint64(0)
	d.grow(t)
	for round := range 2 {
		c := startChild(t, "write", path)
		acknowledged, refused := c.outcomes(func(_, refused int) {
			if refused == 20 {
				c.kill()
			}
		})
		if len(acknowledged) == 0 || len(refused) < 20 {
			t.Fatalf("round %d: %d writes were acknowledged, %d refused", round, len(acknowledged), len(refused))
		}
		d.grow(t)
		db, s := reopen(t, path)
		check(t, db)
		checkAcknowledged(t, s, all, acknowledged, before)
		for name := range refused {
			if err := s.Get(t.Context(), podKey(name), storage.GetOptions{}, &example.Pod{}); !storage.IsNotFound(err) {
				t.Errorf("round %d: %s was refused, and there is: %v", round, name, err)
			}
		}
		out := mustCreate(t, s, fmt.Sprintf("after-%d", round))
		all[out.Name], before = out.ResourceVersion, revision(t, out)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// F26: a compaction that fails does not end compaction, and readiness comes back
// without a client having to write.
func testFailedCompaction(t *testing.T, d *disk) {
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(t.Context(), Config{Path: filepath.Join(d.dir, "kommit.db"), History: History{MaxEvents: 5, Interval: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeChecked(t, db)
		s, err := db.newStore(podStoreConfig())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 9 {
			mustCreate(t, s, fmt.Sprint(i))
		}
		d.limit(t, 0) // no write succeeds at all
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		var full *DiskFullError
		if err := db.Ready(); !errors.As(err, &full) {
			t.Errorf("Ready() = %v after a compaction on a full disk", err)
		}
		statistics, err := db.Statistics()
		if err != nil || !statistics.LastCompaction.IsZero() || s.CompactRevision() != 0 {
			t.Errorf("compacted to %d at %v, %v", s.CompactRevision(), statistics.LastCompaction, err)
		}
		d.free(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := db.Ready(); err != nil {
			t.Errorf("Ready() = %v one period after there was space", err)
		}
		if got := s.CompactRevision(); got != 5 {
			t.Errorf("CompactRevision() = %d of 10, want 5", got)
		}
		if statistics, err := db.Statistics(); err != nil || time.Since(statistics.LastCompaction) > time.Minute {
			t.Errorf("last compaction %v, %v", statistics.LastCompaction, err)
		}
	})
}
