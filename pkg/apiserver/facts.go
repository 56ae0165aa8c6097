// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kommit-dev/kommit/pkg/attribution"
	"github.com/kommit-dev/kommit/pkg/journal"
)

// factLog makes facts durable (C5). Each batch is one record.
type factLog struct{ log *journal.Log }

func newFactLog(store journal.Store) factLog {
	return factLog{journal.NewLog(store, "facts", attribution.DefaultTTL)}
}

// Keep returns nil when the facts are on disk.
func (f factLog) Keep(now time.Time, facts []attribution.Fact) error {
	record, err := json.Marshal(facts)
	if err != nil {
		return fmt.Errorf("facts: %w", err)
	}
	return f.log.Append(now, record)
}

// restore gives back what an earlier process kept. What it cannot read is named in
// the error, after all else was restored: it costs authors, never a change.
func (f factLog) restore(now time.Time, facts *attribution.Facts) error {
	return f.log.Replay(now, func(at time.Time, record []byte) error {
		var kept []attribution.Fact
		if err := json.Unmarshal(record, &kept); err != nil {
			return fmt.Errorf("facts of %s: %w", at.Format(time.RFC3339), err)
		}
		facts.Restore(at, kept...)
		return nil
	})
}
