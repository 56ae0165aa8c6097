// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"testing"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		name     string
		hash     string
		changed  []string
		onRemote bool
		reason   string
	}{
		{"W15: nothing to commit, no push to wait for", "", nil, false, v1alpha1.ReasonAlreadyPresent},
		{"W16: built, not on the remote", "abc", []string{"a.yaml"}, false, v1alpha1.ReasonWaitingForPush},
		{"W16: on the remote", "abc", []string{"a.yaml"}, true, v1alpha1.ReasonCommitted},
		{"W14: an empty commit, not on the remote", "abc", nil, false, v1alpha1.ReasonWaitingForPush},
		{"W14: an empty commit on the remote", "abc", nil, true, v1alpha1.ReasonEmptyCommit},
	} {
		t.Run(test.name, func(t *testing.T) {
			if reason := Outcome(test.hash, test.changed, test.onRemote); reason != test.reason {
				t.Errorf("%s, not %s", reason, test.reason)
			}
		})
	}
}

func TestAllowEmpty(t *testing.T) {
	for _, test := range []struct {
		name    string
		write   Write
		allowed bool
	}{
		{"nobody asked", Write{Kind: WindowWrite}, false},
		{"a resync", Write{Kind: ResyncWrite}, false},
		{"Resolve", Write{Request: &Request{WhenNothingToCommit: v1alpha1.NothingResolve}}, false},
		{"W14: CommitEmpty, already present", Write{Kind: WindowWrite, Request: &Request{WhenNothingToCommit: v1alpha1.NothingCommitEmpty}}, true},
		{"W14: CommitEmpty, nothing open", Write{Kind: EmptyWrite, Request: &Request{WhenNothingToCommit: v1alpha1.NothingCommitEmpty}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if allowed := test.write.AllowEmpty(); allowed != test.allowed {
				t.Errorf("allowed is %v", allowed)
			}
		})
	}
}
