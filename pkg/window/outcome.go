// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import "github.com/kommit-dev/kommit/apis/kommit/v1alpha1"

// UnresolvedName is what commits say instead of an author whom attribution did
// not find (W20).
const UnresolvedName = "unknown (attribution unresolved)"

// AllowEmpty says whether the write is recorded by an empty commit when it
// changes nothing in Git: only where its request asks for that (W14).
func (w Write) AllowEmpty() bool {
	return w.Request != nil && w.Request.WhenNothingToCommit == v1alpha1.NothingCommitEmpty
}

// Outcome is the reason to report to the write's request once the write was
// built. hash is that of its commit, empty if there was nothing to commit (W15);
// changed are the paths that the commit changes; onRemote says that the commit
// is reachable from the branch on the remote under this very hash (W16). A write
// that failed has the reason of its failure instead.
func Outcome(hash string, changed []string, onRemote bool) string {
	switch {
	case hash == "":
		return v1alpha1.ReasonAlreadyPresent
	case !onRemote:
		return v1alpha1.ReasonWaitingForPush
	case len(changed) == 0:
		return v1alpha1.ReasonEmptyCommit
	}
	return v1alpha1.ReasonCommitted
}
