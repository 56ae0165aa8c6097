// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"testing"
	"time"
)

// Of several writes that were not seen one by one, nobody is named for all who did not
// make them all; what is no intent is nobody's write.
func TestSoleWriterOfWhatWasNotSeen(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	facts := NewFacts(FactsConfig{})
	add := func(username, subresource, version string) {
		t.Helper()
		if err := facts.Add(now, Fact{UID: "u", ResourceVersion: version, Username: username, Verb: verbUpdate, Subresource: subresource, Time: now, Evidence: Proven}); err != nil {
			t.Fatal(err)
		}
	}
	add("alice", "", "8")
	add("system:serviceaccount:kube-system:deployment-controller", "status", "9")
	add("bob", "", "10")
	add("bob", "scale", "100")
	add("carol", "scale", "110")
	add("bob", "", "120")
	tests := []struct {
		after, version, username string
		sole                     bool
	}{
		{"8", "10", "bob", true},  // the status is aside, 8 was seen
		{"7", "10", "bob", false}, // alice wrote, too
		{"", "10", "bob", false},  // nobody knows what was seen
		{"", "8", "alice", true},  // she was the first
		{"9", "9", "alice", true}, // there is nothing in between
		{"10", "110", "carol", false},
		{"10", "100", "bob", true},   // numbers, not texts
		{"100", "120", "bob", false}, // scaling is intent
		{"x", "120", "bob", false},   // of no order, so none can be told
	}
	for _, test := range tests {
		if got := facts.Sole(Version{UID: "u", ResourceVersion: test.version}, test.after, test.username); got != test.sole {
			t.Errorf("after %q up to %s by %s: sole is %v, want %v", test.after, test.version, test.username, got, test.sole)
		}
	}
	if !facts.Sole(Version{UID: "other", ResourceVersion: "5"}, "", "bob") {
		t.Error("somebody else is known to have written to an object that nothing is known of")
	}
}
