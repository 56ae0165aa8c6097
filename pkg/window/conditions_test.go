// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// table is DESIGN 4.4, line by line: the conditions Ready, Reconciling, Stalled
// and Pushed, what kstatus makes of them, and whether it is the end.
var table = []struct {
	reason                             string
	ready, reconciling, stalled, pushd string
	kstatus                            kstatus.Status
	finished                           bool
}{
	{"WaitingForWindow", "False", "True", "–", "Unknown", kstatus.InProgressStatus, false},
	{"CollectingWindow", "False", "True", "–", "Unknown", kstatus.InProgressStatus, false},
	{"WaitingForPush", "False", "True", "–", "False", kstatus.InProgressStatus, false},
	{"Committed", "True", "False", "False", "True", kstatus.CurrentStatus, true},
	{"EmptyCommit", "True", "False", "False", "True", kstatus.CurrentStatus, true},
	{"NoOpenWindow", "True", "False", "False", "False", kstatus.CurrentStatus, true},
	{"WindowMismatch", "True", "False", "False", "False", kstatus.CurrentStatus, true},
	{"AlreadyPresent", "True", "False", "False", "False", kstatus.CurrentStatus, true},
	{"SaveInProgress", "True", "False", "False", "False", kstatus.CurrentStatus, true},
	{"RemoteRejected", "False", "False", "True", "False", kstatus.FailedStatus, false},
	{"AuthenticationFailed", "False", "False", "True", "False", kstatus.FailedStatus, false},
	{"TargetSuspended", "False", "False", "True", "False", kstatus.FailedStatus, true},
	{"TargetDeleted", "False", "False", "True", "False", kstatus.FailedStatus, true},
	{"CommitFailed", "False", "False", "True", "False", kstatus.FailedStatus, true},
}

var (
	noon      = time.Date(2026, 1, 1, 12, 0, 0, 123456789, time.UTC)
	afternoon = noon.Add(time.Hour)
)

func TestStatusIsTheTable(t *testing.T) {
	for _, row := range table {
		t.Run(row.reason, func(t *testing.T) {
			status := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{Reason: row.reason}, noon)

			expect := map[string]string{
				v1alpha1.ConditionReady:       row.ready,
				v1alpha1.ConditionReconciling: row.reconciling,
				v1alpha1.ConditionStalled:     row.stalled,
				v1alpha1.ConditionPushed:      row.pushd,
				v1alpha1.ConditionAttributed:  "True",
				v1alpha1.ConditionCaughtUp:    "–",
			}
			for conditionType, expected := range expect {
				found := "–"
				if c := apimeta.FindStatusCondition(status.Conditions, conditionType); c != nil {
					found = string(c.Status)
					if c.ObservedGeneration != 1 || c.Reason == "" || !c.LastTransitionTime.Time.Equal(noon.Truncate(time.Second)) {
						t.Errorf("%s is incomplete: %+v", conditionType, c)
					}
				}
				if found != expected {
					t.Errorf("%s is %s, not %s", conditionType, found, expected)
				}
			}
			ready := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if ready.Reason != row.reason || ready.Message == "" {
				t.Errorf("Ready says %q %q", ready.Reason, ready.Message)
			}
			if Finished(status) != row.finished {
				t.Errorf("finished is %v", Finished(status))
			}
			if result := computeStatus(t, status, 1); result.Status != row.kstatus {
				t.Errorf("kstatus reads %s: %s", result.Status, result.Message)
			}
			if result := computeStatus(t, status, 2); result.Status != kstatus.InProgressStatus {
				t.Errorf("of another generation kstatus reads %s", result.Status)
			}
		})
	}
}

// TestOtherReasonsChangeNothing: what is not in the table, and no reason at all.
func TestOtherReasonsChangeNothing(t *testing.T) {
	before := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{Reason: v1alpha1.ReasonWaitingForWindow}, noon)
	for _, reason := range []string{
		v1alpha1.ReasonAuthenticated, v1alpha1.ReasonCaughtUp, v1alpha1.ReasonCatchUpTimeout, v1alpha1.ReasonCutShort,
		v1alpha1.ReasonUnreachable, "Nonsense",
	} {
		after := Status(before, 1, Progress{Reason: reason, Commit: "abc", Window: "w"}, afternoon)
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s, which is not on Ready, changed the status", reason)
		}
	}
	if status := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{}, noon); len(status.Conditions) != 0 {
		t.Errorf("no reason at all made %+v", status)
	}
}

// TestStatusIsIdempotent: the same progress again changes nothing, be it all of it
// or what is new only.
func TestStatusIsIdempotent(t *testing.T) {
	for _, row := range table {
		for _, caughtUp := range caughtUpTable {
			p := caughtUp.progress
			p.Reason, p.Message, p.Window, p.Branch, p.Commit = row.reason, "as it is", "w1", "main", "abc"
			once := Status(v1alpha1.CommitRequestStatus{}, 1, p, noon)
			for _, again := range []Progress{p, {Window: "w1"}, {Reason: row.reason, Message: "as it is", Window: "w1"}} {
				if diff := cmp.Diff(once, Status(once, 1, again, afternoon)); diff != "" {
					t.Errorf("%s, %s: -once +again\n%s", row.reason, caughtUp.name, diff)
				}
			}
		}
	}
}

// TestStatusKeepsTransitionTimes: a condition's time is when its status changed,
// not when it was last written.
func TestStatusKeepsTransitionTimes(t *testing.T) {
	status := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{Reason: v1alpha1.ReasonWaitingForWindow}, noon)
	status = Status(status, 1, Progress{Reason: v1alpha1.ReasonWaitingForPush}, noon.Add(time.Minute))
	status = Status(status, 1, Progress{Reason: v1alpha1.ReasonCommitted, Commit: "abc"}, noon.Add(time.Hour))
	for conditionType, expected := range map[string]time.Duration{
		v1alpha1.ConditionReady:       time.Hour,
		v1alpha1.ConditionReconciling: time.Hour,
		v1alpha1.ConditionStalled:     time.Hour,
		v1alpha1.ConditionPushed:      time.Hour,
		v1alpha1.ConditionAttributed:  0,
	} {
		c := apimeta.FindStatusCondition(status.Conditions, conditionType)
		if at := c.LastTransitionTime.Sub(noon.Truncate(time.Second)); at != expected {
			t.Errorf("%s changed after %s, not %s", conditionType, at, expected)
		}
	}
}

func TestStatusDoesNotWriteToTheOldOne(t *testing.T) {
	old := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{Reason: v1alpha1.ReasonCollectingWindow, Window: "w1"}, noon)
	conditions := append([]metav1.Condition(nil), old.Conditions...)
	Status(old, 2, Progress{Reason: v1alpha1.ReasonCommitted, Commit: "abc", Window: "w2"}, afternoon)
	if !reflect.DeepEqual(old.Conditions, conditions) || old.WindowRef.Name != "w1" || old.CompletionTime != nil {
		t.Errorf("the old status was changed: %+v", old)
	}
}

func TestStatusFields(t *testing.T) {
	deadline := metav1.NewMicroTime(noon.Add(5 * time.Second))
	status := v1alpha1.CommitRequestStatus{AttachDeadline: &deadline}
	step := func(p Progress) { status = Status(status, 1, p, noon) }
	expect := func(window, branch, commit string) {
		t.Helper()
		found := ""
		if status.WindowRef != nil {
			found = status.WindowRef.Name
		}
		if found != window || status.Branch != branch || status.Commit != commit {
			t.Errorf("window %q, branch %q, commit %q", found, status.Branch, status.Commit)
		}
	}
	step(Progress{Reason: v1alpha1.ReasonWaitingForWindow, Window: "foreseen"})
	expect("foreseen", "", "")
	step(Progress{Reason: v1alpha1.ReasonWaitingForWindow})
	expect("", "", "")
	step(Progress{Reason: v1alpha1.ReasonCollectingWindow, Window: "w1"})
	expect("w1", "", "")
	// W16: a hash that is not on the remote is nobody's business.
	step(Progress{Reason: v1alpha1.ReasonWaitingForPush, Branch: "main", Commit: "not there yet"})
	expect("w1", "main", "")
	step(Progress{Reason: v1alpha1.ReasonCommitted, Commit: "abc"})
	expect("w1", "main", "abc")
	step(Progress{Reason: v1alpha1.ReasonCommitted})
	expect("w1", "main", "abc")
	if status.AttachDeadline == nil || !status.AttachDeadline.Equal(&deadline) {
		t.Errorf("the deadline became %v", status.AttachDeadline)
	}
}

// TestRefusedByTheRemoteIsNotTheEnd: its changes are kept and tried again.
func TestRefusedByTheRemoteIsNotTheEnd(t *testing.T) {
	for _, reason := range []string{v1alpha1.ReasonRemoteRejected, v1alpha1.ReasonAuthenticationFailed} {
		status := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{Reason: reason, Message: "hook declined"}, noon)
		if result := computeStatus(t, status, 1); result.Status != kstatus.FailedStatus || !strings.Contains(result.Message, "hook declined") {
			t.Errorf("%s: kstatus reads %s %q", reason, result.Status, result.Message)
		}
		status = Status(status, 1, Progress{Reason: v1alpha1.ReasonWaitingForPush}, noon)
		if apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionStalled) != nil {
			t.Errorf("%s: still stalled while it is tried again", reason)
		}
		status = Status(status, 1, Progress{Reason: v1alpha1.ReasonCommitted, Commit: "abc"}, afternoon)
		if result := computeStatus(t, status, 1); result.Status != kstatus.CurrentStatus {
			t.Errorf("%s: after success kstatus reads %s", reason, result.Status)
		}
		if !Finished(status) || !status.CompletionTime.Time.Equal(afternoon.Truncate(time.Second)) {
			t.Errorf("%s: completed at %v", reason, status.CompletionTime)
		}
	}
}

// TestAFinishedRequestStaysSo: a late or repeated outcome changes nothing.
func TestAFinishedRequestStaysSo(t *testing.T) {
	for _, end := range table {
		if !end.finished {
			continue
		}
		finished := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{Reason: end.reason, Commit: "abc"}, noon)
		for _, other := range table {
			if other.reason == end.reason {
				continue
			}
			after := Status(finished, 1, Progress{Reason: other.reason, Commit: "def"}, afternoon)
			if !reflect.DeepEqual(finished, after) {
				t.Errorf("%s became %s", end.reason, other.reason)
			}
		}
	}
}

// caughtUpTable is what may be said of CaughtUp at any of the moments of table.
var caughtUpTable = []struct {
	name           string
	progress       Progress
	status, reason string
	says           string
}{
	{"not known yet", Progress{}, "–", "", ""},
	{"proven", Progress{CaughtUp: new(true)}, "True", "CaughtUp", ""},
	{"not in time", Progress{CaughtUp: new(false), Lagging: "deployments.apps"}, "False", "CatchUpTimeout", "deployments.apps"},
	{"not in time, for no resource in particular", Progress{CaughtUp: new(false)}, "False", "CatchUpTimeout", "capture"},
	{"cut short", Progress{CutShort: true}, "False", "CutShort", "save again"},
	{"cut short, and proven after", Progress{CutShort: true, CaughtUp: new(true)}, "False", "CutShort", "save again"},
	{"cut short, and not proven either", Progress{CutShort: true, CaughtUp: new(false), Lagging: "deployments.apps"}, "False", "CutShort", "save again"},
}

// TestStatusCaughtUp: it is said at every moment, also after the end, and says
// nothing about the others: what kstatus reads stays as it is.
func TestStatusCaughtUp(t *testing.T) {
	for _, row := range table {
		for _, test := range caughtUpTable {
			t.Run(row.reason+"/"+test.name, func(t *testing.T) {
				before := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{Reason: row.reason, Commit: "abc"}, noon)
				status := Status(before, 1, test.progress, afternoon)
				found, reason, message := "–", "", ""
				if c := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionCaughtUp); c != nil {
					found, reason, message = string(c.Status), c.Reason, c.Message
					if c.ObservedGeneration != 1 || !c.LastTransitionTime.Time.Equal(afternoon.Truncate(time.Second)) || c.Message == "" {
						t.Errorf("CaughtUp is incomplete: %+v", c)
					}
				}
				if found != test.status || reason != test.reason || !strings.Contains(message, test.says) {
					t.Errorf("CaughtUp is %s, %s: %s", found, reason, message)
				}
				if result := computeStatus(t, status, 1); result.Status != row.kstatus {
					t.Errorf("kstatus reads %s: %s", result.Status, result.Message)
				}
				apimeta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionCaughtUp)
				if diff := cmp.Diff(before, status); diff != "" {
					t.Errorf("more than CaughtUp changed: -before +after\n%s", diff)
				}
			})
		}
	}
}

// TestStatusKeepsCaughtUp: once said it stays, whatever comes after.
func TestStatusKeepsCaughtUp(t *testing.T) {
	for _, test := range caughtUpTable {
		p := test.progress
		p.Reason = v1alpha1.ReasonCollectingWindow
		collecting := Status(v1alpha1.CommitRequestStatus{}, 1, p, noon)
		committed := Status(collecting, 1, Progress{Reason: v1alpha1.ReasonCommitted, Commit: "abc"}, afternoon)
		before := apimeta.FindStatusCondition(collecting.Conditions, v1alpha1.ConditionCaughtUp)
		after := apimeta.FindStatusCondition(committed.Conditions, v1alpha1.ConditionCaughtUp)
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s: CaughtUp was %+v and became %+v", test.name, before, after)
		}
	}
}

// TestStatusTakesAnyWords: what a remote sends is not ours to trust.
func TestStatusTakesAnyWords(t *testing.T) {
	status := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{
		Reason: v1alpha1.ReasonRemoteRejected, Message: "\xff" + strings.Repeat("é", maxConditionMessage),
	}, noon)
	for _, c := range status.Conditions {
		if len(c.Message) > maxConditionMessage || !utf8.ValidString(c.Message) {
			t.Errorf("%s has a message of %d bytes, valid: %v", c.Type, len(c.Message), utf8.ValidString(c.Message))
		}
	}
}

func TestStatusKeepsForeignConditions(t *testing.T) {
	foreign := metav1.Condition{Type: "example.com/Seen", Status: metav1.ConditionTrue, Reason: "Seen"}
	status := Status(v1alpha1.CommitRequestStatus{Conditions: []metav1.Condition{foreign}}, 1, Progress{Reason: v1alpha1.ReasonCommitted}, noon)
	if c := apimeta.FindStatusCondition(status.Conditions, foreign.Type); c == nil || !reflect.DeepEqual(*c, foreign) {
		t.Errorf("the foreign condition became %+v", c)
	}
}

func computeStatus(t *testing.T, status v1alpha1.CommitRequestStatus, generation int64) *kstatus.Result {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.CommitRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "kommit.dev/v1alpha1", Kind: "CommitRequest"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "save", Generation: generation},
		Status:     status,
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := kstatus.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatal(err)
	}
	return result
}
