// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"
)

// Statistics is a snapshot for metrics.
type Statistics struct {
	FileBytes      int64
	FreePages      int // that hold nothing, those freed by the last commit included
	PageBytes      int
	Commits        uint64
	Writes         uint64        // operations in those commits
	CommitTime     time.Duration // in total, fsync included
	Opened         time.Time
	LastCompaction time.Time // zero: none since Open
	Resources      map[string]ResourceStatistics
}

// ResourceStatistics is about one resource, named "resource.group".
type ResourceStatistics struct {
	Objects         int64
	Bytes           int64 // of their stored values
	Revision        uint64
	CompactRevision uint64
}

// HistoryLength is the number of revisions that can still be read.
func (s ResourceStatistics) HistoryLength() uint64 { return s.Revision - s.CompactRevision }

type statistics struct {
	opened time.Time
	// commitTimes, in seconds, and batchSizes, in operations, are of good commits.
	commitTimes, batchSizes prometheus.Histogram

	mu         sync.Mutex // protects all below
	commits    uint64
	writes     uint64
	commitTime time.Duration
	compaction time.Time
}

func newStatistics(now time.Time) *statistics {
	return &statistics{
		opened: now,
		commitTimes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: namePrefix + "commit_duration_seconds", Help: "Time that a commit took, fsync included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		batchSizes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: namePrefix + "commit_operations", Help: "Operations that shared a commit and its fsync.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11), // to maxBatchOperations
		}),
	}
}

func (s *statistics) committed(writes int, took time.Duration) {
	s.commitTimes.Observe(took.Seconds())
	s.batchSizes.Observe(float64(writes))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	s.writes += uint64(writes)
	s.commitTime += took
}

func (s *statistics) compacted(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compaction = at
}

// Statistics returns what there is to measure. It reads counters only, so it is
// cheap enough for every scrape.
func (db *DB) Statistics() (Statistics, error) {
	out := Statistics{Resources: map[string]ResourceStatistics{}}
	if err := db.View(func(tx *bbolt.Tx) error {
		out.FileBytes = tx.Size()
		return nil
	}); err != nil {
		return Statistics{}, err
	}
	pages := db.bolt.Stats()
	out.FreePages, out.PageBytes = pages.FreePageN+pages.PendingPageN, db.bolt.Info().PageSize
	for _, r := range db.allResources() {
		c := r.counters.Load()
		out.Resources[r.name] = ResourceStatistics{
			Objects: c.count, Bytes: c.bytes,
			// The compacted revision first: it never passes the current one.
			CompactRevision: r.compacted.Load(), Revision: r.feed.revision(),
		}
	}
	db.stats.mu.Lock()
	defer db.stats.mu.Unlock()
	out.Commits, out.Writes = db.stats.commits, db.stats.writes
	out.CommitTime, out.LastCompaction, out.Opened = db.stats.commitTime, db.stats.compaction, db.stats.opened
	return out, nil
}
