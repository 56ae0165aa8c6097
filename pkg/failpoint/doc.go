// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failpoint names the instants at which the end of the process would hurt
// most, so that a test can end it right there: before and after what makes something
// durable, or known to others, takes effect (DESIGN 8).
//
// Only a binary that is built with the tag failpoints ends itself; in all others Hit
// is empty. A switch that kills a server has no place in what is shipped.
package failpoint

// The named instants.
const (
	JournalCommitBefore = "journal-commit-before"
	JournalCommitAfter  = "journal-commit-after"
	PushBefore          = "push-before"
	PushAfter           = "push-after"
	StatusBefore        = "status-before"
	StatusAfter         = "status-after"
)

// Variable is the environment variable that says where a binary with failpoints ends
// itself, as kill -9 would: "name", or "name:n" for the n-th time that it gets there.
const Variable = "KOMMIT_FAILPOINT"

// Names are all instants.
func Names() []string {
	return []string{JournalCommitBefore, JournalCommitAfter, PushBefore, PushAfter, StatusBefore, StatusAfter}
}
