// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:method=GetCommit,verb=get,subresource=commits,result=Commit
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CommitRequest is the Save button: it turns the edits that its creator made
// to a GitTarget's objects since their last save into one pushed commit, and
// reports the commit's hash.
type CommitRequest struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the request. It never changes after create.
	Spec CommitRequestSpec `json:"spec"`

	// status is how far the save has come. Written by the server.
	// +optional
	Status CommitRequestStatus `json:"status,omitempty,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CommitRequestList is a list of CommitRequests.
type CommitRequestList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the CommitRequests.
	Items []CommitRequest `json:"items"`
}

// CommitRequestSpec is the request. It never changes after create.
type CommitRequestSpec struct {
	// gitTargetRef names the GitTarget in the same namespace whose edits are saved.
	// It must exist when the request is created.
	GitTargetRef LocalObjectReference `json:"gitTargetRef"`

	// message of the commit, used verbatim: 1 to 1024 Unicode characters, at least
	// one of them not white space, no control characters but newline. Unset: a
	// message is generated that says what changed.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=1024
	Message string `json:"message,omitempty"`

	// window says which edits are saved, and for how long they are collected.
	// +optional
	Window RequestWindow `json:"window,omitempty,omitzero"`

	// whenNothingToCommit says what happens when there is nothing to save: Resolve
	// (default) finishes without a commit; CommitEmpty records the message in an
	// empty commit, and needs a message.
	// +optional
	// +default="Resolve"
	// +k8s:optional
	WhenNothingToCommit NothingToCommitPolicy `json:"whenNothingToCommit,omitempty"`

	// ttlSecondsAfterFinished is how long a finished request is kept before it is
	// deleted. 0 or more; default 604800 (7 days).
	// +optional
	// +default=604800
	// +k8s:optional
	// +k8s:minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// requestedBy is the user who created the request. Set by the server from the
	// authenticated request, as CertificateSigningRequest does; whatever a client
	// sends is overwritten.
	// +optional
	RequestedBy UserInfo `json:"requestedBy,omitempty,omitzero"`
}

// AttachPolicy says which window a CommitRequest closes.
// +enum
// +k8s:enum
type AttachPolicy string

const (
	// AttachCurrentOrNext takes its author's open window, or the next one to open.
	AttachCurrentOrNext AttachPolicy = "CurrentOrNext"
	// AttachNext closes its author's open window first, under whatever message that
	// one carries, and takes the next one to open.
	AttachNext AttachPolicy = "Next"
)

// NothingToCommitPolicy says what happens when there is nothing to save.
// +enum
// +k8s:enum
type NothingToCommitPolicy string

const (
	// NothingResolve finishes the request without a commit.
	NothingResolve NothingToCommitPolicy = "Resolve"
	// NothingCommitEmpty records the request's message in an empty commit.
	NothingCommitEmpty NothingToCommitPolicy = "CommitEmpty"
)

// RequestWindow says which edits a CommitRequest saves, and for how long they
// are collected.
type RequestWindow struct {
	// attach is CurrentOrNext (default) or Next. Next needs attachTimeout > 0.
	// +optional
	// +default="CurrentOrNext"
	// +k8s:optional
	Attach AttachPolicy `json:"attach,omitempty"`

	// attachTimeout is how long to wait for a window to attach to, counted from
	// create. 0s to 5m; default 5s. With 0s only a window that is open already is
	// taken.
	// +optional
	// +default="5s"
	// +k8s:opaqueType
	AttachTimeout *metav1.Duration `json:"attachTimeout,omitempty"`

	// idleTimeout closes the attached window after this silence; each change
	// restarts it. At most maxDuration. Unset: silence closes nothing.
	// +optional
	// +k8s:opaqueType
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// maxDuration closes the attached window this long after it was attached. 0s to
	// 5m; default 2s. With 0s it closes at once.
	// +optional
	// +default="2s"
	// +k8s:opaqueType
	MaxDuration *metav1.Duration `json:"maxDuration,omitempty"`
}

// UserInfo is an authenticated Kubernetes user.
type UserInfo struct {
	// username that identifies the user among all active users.
	// +optional
	Username string `json:"username,omitempty"`

	// uid that identifies the user across time, where the authenticator has one.
	// +optional
	UID string `json:"uid,omitempty"`

	// groups the user is in.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`

	// extra is what else the authenticator said of the user.
	// +optional
	Extra map[string]ExtraValue `json:"extra,omitempty"`
}

// ExtraValue is one of the extra attributes of a user.
type ExtraValue []string

// CommitRequestStatus is how far the save has come.
type CommitRequestStatus struct {
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions tell the whole story: Ready, Reconciling and Stalled as kstatus
	// reads them, Pushed, Attributed and CaughtUp. The reasons on Ready are listed in
	// DESIGN 4.4.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// attachDeadline is when the request stops waiting for a window: create plus
	// attachTimeout.
	// +optional
	// +k8s:opaqueType
	AttachDeadline *metav1.MicroTime `json:"attachDeadline,omitempty"`

	// windowRef names the window that the request is attached to.
	// +optional
	// +k8s:optional
	WindowRef *LocalObjectReference `json:"windowRef,omitempty"`

	// branch that the commit is on.
	// +optional
	Branch string `json:"branch,omitempty"`

	// commit is the hash of the commit as it is on the remote.
	// +optional
	Commit string `json:"commit,omitempty"`

	// completionTime is when the request was finished.
	// +optional
	// +k8s:opaqueType
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}
