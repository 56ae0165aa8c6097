// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// maxConditionMessage is the longest message that a condition may have, in
// bytes (metav1.Condition).
const maxConditionMessage = 32768

// Progress is how far a request has come, as its owner knows it.
type Progress struct {
	// Reason is the row of DESIGN 4.4: one of the reasons on Ready. Empty: as before.
	Reason string
	// Message says more than the reason: the last push error, or the remote's own
	// words. Empty: what the reason means.
	Message string
	// Window that the request holds or would hold. Empty: as before, unless the
	// reason says that there is none.
	Window string
	// Branch that the commit is on. Empty: as before.
	Branch string
	// Commit is the hash as it is on the remote; ignored for a reason that does not
	// mean that it is there (W16). Empty: as before.
	Commit string
	// CaughtUp says how catching up ended (DESIGN 5.5). Nil: as before.
	CaughtUp *bool
	// Lagging is the resource that was not caught up with; only if CaughtUp is false.
	Lagging string
	// CutShort says that the window was closed before catching up had ended
	// (Write.CutShort), which then cannot prove anything any more: CaughtUp is false,
	// whatever is said of it later.
	CutShort bool
}

// row is a line of the table in DESIGN 4.4.
type row struct {
	ready, reconciling metav1.ConditionStatus
	// stalled and pushed are as the table has them; stalled is empty for "–".
	stalled, pushed metav1.ConditionStatus
	// final: nothing comes after it. The completion time is set, and the TTL counts.
	final bool
	// windowless: the request has no window, whatever was foreseen at create.
	windowless bool
	message    string
}

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
	absent  = metav1.ConditionStatus("")
)

// rowOf is the table of DESIGN 4.4. RemoteRejected and AuthenticationFailed read
// as failed but are not final: their changes are kept and tried again when the
// provider, its Secret or the target changes, so that they may still become
// Committed, and must not be deleted by the TTL before. All other rows that are
// not in progress are final.
func rowOf(reason string) (row, bool) {
	switch reason {
	case v1alpha1.ReasonWaitingForWindow:
		return row{ready: no, reconciling: yes, stalled: absent, pushed: unknown, windowless: true,
			message: "waiting for a change by the requester"}, true
	case v1alpha1.ReasonCollectingWindow:
		return row{ready: no, reconciling: yes, stalled: absent, pushed: unknown,
			message: "collecting the requester's changes"}, true
	case v1alpha1.ReasonWaitingForPush:
		return row{ready: no, reconciling: yes, stalled: absent, pushed: no,
			message: "committed, waiting to be pushed"}, true
	case v1alpha1.ReasonCommitted:
		return row{ready: yes, reconciling: no, stalled: no, pushed: yes, final: true,
			message: "the changes are on the remote"}, true
	case v1alpha1.ReasonEmptyCommit:
		return row{ready: yes, reconciling: no, stalled: no, pushed: yes, final: true,
			message: "there was nothing to commit; the message is on the remote in an empty commit"}, true
	case v1alpha1.ReasonNoOpenWindow:
		return row{ready: yes, reconciling: no, stalled: no, pushed: no, final: true, windowless: true,
			message: "the requester changed nothing, so there was nothing to commit"}, true
	case v1alpha1.ReasonWindowMismatch:
		return row{ready: yes, reconciling: no, stalled: no, pushed: no, final: true, windowless: true,
			message: "the requester changed nothing; the changes that were there are another author's"}, true
	case v1alpha1.ReasonAlreadyPresent:
		return row{ready: yes, reconciling: no, stalled: no, pushed: no, final: true,
			message: "Git already has the changes, so there was nothing to commit"}, true
	case v1alpha1.ReasonSaveInProgress:
		return row{ready: yes, reconciling: no, stalled: no, pushed: no, final: true, windowless: true,
			message: "an earlier save of the same user on this target is under way and takes the changes"}, true
	case v1alpha1.ReasonRemoteRejected:
		return row{ready: no, reconciling: no, stalled: yes, pushed: no,
			message: "the remote refused the commit; it is kept, and tried again when the GitProvider or the GitTarget changes, and every few minutes"}, true
	case v1alpha1.ReasonAuthenticationFailed:
		return row{ready: no, reconciling: no, stalled: yes, pushed: no,
			message: "the remote refused the credentials, or the Secret has none that can be used; the commit is kept, and tried again when the GitProvider or the GitTarget changes, and every minute or so with the Secret as it is then"}, true
	case v1alpha1.ReasonTargetSuspended:
		return row{ready: no, reconciling: no, stalled: yes, pushed: no, final: true,
			message: "the GitTarget is suspended; resume it and save again"}, true
	case v1alpha1.ReasonTargetDeleted:
		return row{ready: no, reconciling: no, stalled: yes, pushed: no, final: true,
			message: "the GitTarget was deleted"}, true
	case v1alpha1.ReasonCommitFailed:
		return row{ready: no, reconciling: no, stalled: yes, pushed: no, final: true,
			message: "the commit could not be built"}, true
	}
	return row{}, false
}

// Status is the status that follows old when the request has come as far as p:
// all of DESIGN 4.4, and nothing of it anywhere else. The same progress again
// yields an equal status. A finished request keeps its reason, and a reason that
// is not in the table changes nothing. old is not written to.
//
// The first status of a request follows the zero status; its AttachDeadline is
// the caller's to set and is kept.
func Status(old v1alpha1.CommitRequestStatus, generation int64, p Progress, now time.Time) v1alpha1.CommitRequestStatus {
	if ready := apimeta.FindStatusCondition(old.Conditions, v1alpha1.ConditionReady); ready != nil {
		switch {
		case p.Reason == "":
			p.Reason, p.Message = ready.Reason, ready.Message
		case Finished(old) && p.Reason != ready.Reason:
			return old
		}
	}
	r, ok := rowOf(p.Reason)
	if !ok {
		return old
	}
	message := clip(p.Message)
	if message == "" {
		message = r.message
	}

	status := old
	status.ObservedGeneration = generation
	status.Conditions = transition(old.Conditions, generation, now, append([]metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: r.ready, Reason: p.Reason, Message: message},
		{Type: v1alpha1.ConditionReconciling, Status: r.reconciling, Reason: p.Reason, Message: messageIf(r.reconciling, message)},
		{Type: v1alpha1.ConditionStalled, Status: r.stalled, Reason: p.Reason, Message: messageIf(r.stalled, message)},
		{Type: v1alpha1.ConditionPushed, Status: r.pushed, Reason: p.Reason},
		{Type: v1alpha1.ConditionAttributed, Status: yes, Reason: v1alpha1.ReasonAuthenticated,
			Message: "saved in the name of the authenticated user, see spec.requestedBy"},
	}, caughtUp(old.Conditions, p)...))

	switch {
	case p.Window != "":
		status.WindowRef = &v1alpha1.LocalObjectReference{Name: p.Window}
	case r.windowless:
		status.WindowRef = nil
	}
	if p.Branch != "" {
		status.Branch = p.Branch
	}
	switch {
	case r.pushed != yes:
		status.Commit = ""
	case p.Commit != "":
		status.Commit = p.Commit
	}
	if r.final && status.CompletionTime == nil {
		completed := stamp(now)
		status.CompletionTime = &completed
	}
	return status
}

// Finished says whether the request has come to its end: nothing more is done
// for it, and its TTL counts from status.completionTime. It is false for
// RemoteRejected and AuthenticationFailed, which are tried again.
func Finished(status v1alpha1.CommitRequestStatus) bool {
	return status.CompletionTime != nil
}

// caughtUp is the CaughtUp condition, absent until catching up has ended.
func caughtUp(old []metav1.Condition, p Progress) []metav1.Condition {
	switch {
	case p.CutShort:
		return []metav1.Condition{{
			Type: v1alpha1.ConditionCaughtUp, Status: no, Reason: v1alpha1.ReasonCutShort,
			Message: "the window was closed before it caught up: changes made before may be missing; save again to include them",
		}}
	case p.CaughtUp == nil:
		if before := apimeta.FindStatusCondition(old, v1alpha1.ConditionCaughtUp); before != nil {
			return []metav1.Condition{*before}
		}
		return nil
	case *p.CaughtUp:
		return []metav1.Condition{{
			Type: v1alpha1.ConditionCaughtUp, Status: yes, Reason: v1alpha1.ReasonCaughtUp,
			Message: "holds all that the requester did before",
		}}
	}
	lagging := "capture"
	if p.Lagging != "" {
		lagging = p.Lagging
	}
	return []metav1.Condition{{
		Type: v1alpha1.ConditionCaughtUp, Status: no, Reason: v1alpha1.ReasonCatchUpTimeout,
		Message: clip(fmt.Sprintf("%s did not catch up in time: changes made before may be missing; save again to include them", lagging)),
	}}
}

// transition makes conditions out of wanted, in this order, keeping the
// transition time of each whose status is as it was, and what else is in old.
// A wanted condition without a status is left out.
func transition(old []metav1.Condition, generation int64, now time.Time, wanted []metav1.Condition) []metav1.Condition {
	conditions := make([]metav1.Condition, 0, len(wanted))
	for _, c := range wanted {
		if c.Status == absent {
			continue
		}
		c.ObservedGeneration = generation
		c.LastTransitionTime = stamp(now)
		if before := apimeta.FindStatusCondition(old, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
		conditions = append(conditions, c)
	}
	for _, c := range old {
		if !ours(c.Type) {
			conditions = append(conditions, c)
		}
	}
	return conditions
}

// ours says whether Status decides about a condition type.
func ours(conditionType string) bool {
	return slices.Contains([]string{
		v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
		v1alpha1.ConditionPushed, v1alpha1.ConditionAttributed, v1alpha1.ConditionCaughtUp,
	}, conditionType)
}

func messageIf(status metav1.ConditionStatus, message string) string {
	if status == yes {
		return message
	}
	return ""
}

// stamp is now as the API keeps it, in whole seconds, so that a status read back
// equals the one that was written.
func stamp(now time.Time) metav1.Time {
	return metav1.NewTime(now.UTC().Truncate(time.Second))
}

// clip makes a message valid for a condition, whatever a remote sent.
func clip(message string) string {
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) <= maxConditionMessage {
		return message
	}
	const ellipsis = "…"
	end := maxConditionMessage - len(ellipsis)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + ellipsis
}
