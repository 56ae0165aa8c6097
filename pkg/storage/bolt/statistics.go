// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// Statistics is a snapshot for metrics.
type Statistics struct {
	FileBytes      int64
	FreePages      int
	PageBytes      int
	Commits        uint64
	Writes         uint64        // operations in those commits
	CommitTime     time.Duration // in total, fsync included
	LastCompaction time.Time     // zero: none since Open
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
	mu         sync.Mutex // protects all below
	commits    uint64
	writes     uint64
	commitTime time.Duration
	compaction time.Time
}

func (s *statistics) committed(writes int, took time.Duration) {
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
	out.FreePages, out.PageBytes = db.bolt.Stats().FreePageN, db.bolt.Info().PageSize
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
	out.CommitTime, out.LastCompaction = db.stats.commitTime, db.stats.compaction
	return out, nil
}
