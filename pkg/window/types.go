// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// Author is the identity that windows are kept apart by. The zero value is the
// shared author of a target without attribution.
type Author struct {
	// Username is the Kubernetes user name as authenticated.
	Username string
	// Unresolved says that attribution ran and found nobody (W20).
	Unresolved bool
}

// Unresolved is the author of changes that attribution found nobody for. No
// request can claim its window (W20).
var Unresolved = Author{Unresolved: true}

// Object names a captured object within its target.
type Object struct {
	Group     string
	Resource  string
	Namespace string
	Name      string
}

// Operation is what happened to an object.
type Operation string

// The operations of a change.
const (
	Create Operation = "create"
	Update Operation = "update"
	Delete Operation = "delete"
)

// Change is one persisted write to one object, as the cluster stored it.
type Change struct {
	Target          types.NamespacedName
	Object          Object
	UID             types.UID
	ResourceVersion string
	Author          Author
	Operation       Operation
	// Manifest is the object's intent as package manifest renders it; nil for a
	// deletion. It is shared and must not be written to.
	Manifest []byte
}

// RequestRef identifies one stored CommitRequest. Names are re-used, UIDs are
// not (W6).
type RequestRef struct {
	Namespace string
	Name      string
	UID       types.UID
}

// Request is a CommitRequest as the engine sees it.
type Request struct {
	RequestRef

	Target types.NamespacedName
	// Author is spec.requestedBy.username.
	Author Author
	// Message is used verbatim; empty means that one is generated.
	Message string
	Attach  v1alpha1.AttachPolicy
	// AttachDeadline was fixed at create (W6).
	AttachDeadline time.Time
	// IdleTimeout closes the attached window after this silence; 0 means never.
	IdleTimeout time.Duration
	// MaxDuration closes the attached window this long after the attach.
	MaxDuration         time.Duration
	WhenNothingToCommit v1alpha1.NothingToCommitPolicy
}

// Target is what the engine knows of a GitTarget.
type Target struct {
	Name types.NamespacedName
	// IdleTimeout closes an unclaimed window after this silence; 0 means never.
	IdleTimeout time.Duration
	// MaxDuration closes an unclaimed window this long after it opened; 0 means never.
	MaxDuration time.Duration
	// Shared is attribution: None; one window for all, claimed by any request.
	Shared    bool
	Suspended bool
}

// WriteKind says where a write comes from.
type WriteKind string

// The kinds of a write.
const (
	// WindowWrite is a closed window.
	WindowWrite WriteKind = "Window"
	// ResyncWrite brings Git up to what a complete list showed (W13, C9).
	ResyncWrite WriteKind = "Resync"
	// EmptyWrite records a message without changes (W14).
	EmptyWrite WriteKind = "Empty"
)

// Cause is why a window was closed (W5).
type Cause string

// The causes that close a window.
const (
	CauseIdle          Cause = "Idle"
	CauseMaxDuration   Cause = "MaxDuration"
	CauseRequest       Cause = "Request"
	CauseNext          Cause = "Next"
	CauseObjectTaken   Cause = "ObjectTaken"
	CauseSizeLimit     Cause = "SizeLimit"
	CauseResync        Cause = "Resync"
	CauseSuspended     Cause = "Suspended"
	CauseTargetDeleted Cause = "TargetDeleted"
	// CauseTargetChanged: the target began or ceased to share one window.
	CauseTargetChanged Cause = "TargetChanged"
	CauseShutdown      Cause = "Shutdown"
)

// Write is what waits to be committed: at most one commit comes of it.
type Write struct {
	// Name is the window's name, unique within the engine's lifetime.
	Name   string
	Kind   WriteKind
	Target types.NamespacedName
	// Author of the commit: the requester where somebody asked, else the author of
	// the changes. The zero Author (a resync, or a shared window that nobody asked
	// for) stands for the committer.
	Author Author
	// Request is the one that is reported to; nil when nobody asked.
	Request *Request
	// CutShort: the window was closed before its request had caught up. What the
	// requester did before the save may come after this write and be in another, so
	// nobody can say that this one holds it all (DESIGN 5.5).
	CutShort bool
	// Changes hold the last write to each object, in the order in which the objects
	// were first seen (W4).
	Changes []Change
	Cause   Cause
	Opened  time.Time
	// Closed is the time of the commit (G5).
	Closed time.Time
}

// Effect is something the shell has to do, in the order returned.
type Effect interface{ effect() }

// Opened says that a window is open from now on, which a Collected follows. With
// its Sequence it is what Restore needs of it.
type Opened struct {
	Window string
	Target types.NamespacedName
	// Author is the zero Author where all share one window.
	Author Author
	// Sequence orders openings and registrations.
	Sequence uint64
}

// Collected says what an open window holds of an object from now on.
type Collected struct {
	Window string
	// Index is the object's place in the window, counted from 0 (W4).
	Index  int
	Change Change
}

// Registered says that a request was taken in: it waits, unless Attached follows. It
// comes again when what the request has noted changes.
type Registered struct {
	Request  Request
	Sequence uint64
	// Mismatch: a window that it cannot have is open (W12).
	Mismatch bool
}

// Attached says that the request holds the window from now on.
type Attached struct {
	Request RequestRef
	Window  string
}

// CatchUp asks to prove that capture has seen and attributed all that was
// persisted in the target before now, and then to call Engine.CaughtUp, also if
// the proof failed or its bound ran out (DESIGN 5.5). Until then the request
// neither expires nor closes its window by its own timers.
type CatchUp struct {
	Request RequestRef
	Target  types.NamespacedName
}

// Closed asks to queue the write, after all that were closed before it. Its
// request, if any, is reported by what becomes of it (Outcome).
type Closed struct{ Write Write }

// Discarded says that the changes are not committed: the target is suspended
// (W18) or unknown. Where a window of a request is discarded, a Resolved follows.
// A change that never came into a window has a write without a name.
type Discarded struct{ Write Write }

// Resolved says that the request is finished without a commit, for this reason
// (a Reason* constant of v1alpha1).
type Resolved struct {
	Request RequestRef
	Reason  string
}

func (Opened) effect()     {}
func (Collected) effect()  {}
func (Registered) effect() {}
func (Attached) effect()   {}
func (CatchUp) effect()    {}
func (Closed) effect()     {}
func (Discarded) effect()  {}
func (Resolved) effect()   {}
