// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrape returns the values of all metrics by name and label values; of a
// histogram its _count and _sum.
func scrape(t *testing.T, db *DB) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry() // refuses what is not described
	if err := registry.Register(db.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				values[name+"_count"], values[name+"_sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			values[name] = m.GetGauge().GetValue()
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
		before := scrape(t, db)
		time.Sleep(30 * time.Second)
		mustCreate(t, s, "a")
		mustCreate(t, s, "b")
		mustDelete(t, s, "b")
		wrote := scrape(t, db)
		for name, want := range map[string]float64{
			"kommit_storage_healthy":                     0,
			"kommit_storage_objects  pods":               1,
			"kommit_storage_history_revisions  pods":     3,
			"kommit_storage_commit_operations_count":     3,
			"kommit_storage_commit_operations_sum":       3,
			"kommit_storage_commit_duration_seconds_sum": 0, // a bubble's clock stands still
			"kommit_storage_last_compaction_age_seconds": 30,
		} {
			if got := wrote[name] - before[name]; got != want {
				t.Errorf("%s grew by %v with three writes in 30s, want %v", name, got, want)
			}
		}
		if got := wrote["kommit_storage_healthy"]; got != 1 {
			t.Errorf("healthy is %v, want 1", got)
		}
		if size := wrote["kommit_storage_object_bytes  pods"]; size <= 0 || size > wrote["kommit_storage_file_size_bytes"] {
			t.Errorf("objects of %v bytes in a file of %v", size, wrote["kommit_storage_file_size_bytes"])
		}
		if _, ok := wrote["kommit_storage_last_compaction_timestamp_seconds"]; ok {
			t.Error("there is a time of a compaction that has not been")
		}

		// F26: the time of the last good round, and its age.
		started := time.Now()
		time.Sleep(11 * time.Minute) // one past the age of the records
		compacted := scrape(t, db)
		if last := compacted["kommit_storage_last_compaction_timestamp_seconds"]; last <= float64(started.Unix()) || last > float64(time.Now().Unix()) {
			t.Errorf("last compaction at %v, now is %v", last, time.Now().Unix())
		}
		if age := compacted["kommit_storage_last_compaction_age_seconds"]; age < 0 || age > 60 {
			t.Errorf("last compaction %vs ago, they are a minute apart", age)
		}
		if got := compacted["kommit_storage_history_revisions  pods"]; got != 0 {
			t.Errorf("history of %v revisions after the compaction, want 0", got)
		}
		if free := compacted["kommit_storage_free_pages"]; free <= 0 || compacted["kommit_storage_free_bytes"] != free*float64(db.bolt.Info().PageSize) {
			t.Errorf("%v free pages, %v bytes", free, compacted["kommit_storage_free_bytes"])
		}

		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		closed := scrape(t, db)
		if healthy, ok := closed["kommit_storage_healthy"]; !ok || healthy != 0 {
			t.Errorf("closed: healthy is %v, %t", healthy, ok)
		}
	})
}

func TestFailedCommitsShowInMetrics(t *testing.T) {
	db, _ := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	before := scrape(t, db)
	db.health.Store(&health{err: &DiskFullError{Path: db.path, Err: errors.New("no space")}})
	after := scrape(t, db)
	if after["kommit_storage_healthy"] != 0 || before["kommit_storage_healthy"] != 1 {
		t.Errorf("healthy is %v, was %v", after["kommit_storage_healthy"], before["kommit_storage_healthy"])
	}
}
