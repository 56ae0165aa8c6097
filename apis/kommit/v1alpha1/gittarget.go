// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FlushFinalizer keeps a deleted GitTarget until its windows are closed and pushed
// and their requests have been told. Whoever removes it by hand gives up what is
// not on the remote by then.
const FlushFinalizer = "kommit.dev/flush"

// +genclient
// +genclient:method=CreateCommit,verb=create,subresource=commits,input=CommitRequest,result=CommitRequest
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GitTarget is a branch and a path of a GitProvider's repository: where the
// files of captured objects go.
type GitTarget struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says where the files go and how edits become commits.
	Spec GitTargetSpec `json:"spec"`

	// status is what kommit last saw of the target. Written by the server.
	// +optional
	Status GitTargetStatus `json:"status,omitempty,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GitTargetList is a list of GitTargets.
type GitTargetList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the GitTargets.
	Items []GitTarget `json:"items"`
}

// AttributionMode says how changes find their author.
// +enum
// +k8s:enum
type AttributionMode string

const (
	// AttributionAudit takes the author of each change from audit events: one
	// window per author.
	AttributionAudit AttributionMode = "Audit"
	// AttributionNone has no authors: one shared window per target, claimed by any
	// permitted request, committed in the name of the requester.
	AttributionNone AttributionMode = "None"
)

// GitTargetSpec says where the files go and how edits become commits.
type GitTargetSpec struct {
	// gitProviderRef names the GitProvider in the same namespace. Immutable.
	GitProviderRef LocalObjectReference `json:"gitProviderRef"`

	// branch to commit to, without refs/heads/. It is created by the first commit
	// when the repository does not have it. Immutable.
	// +k8s:required
	Branch string `json:"branch"`

	// path of the directory below which the files go: relative, clean, without ".."
	// and ".git". Empty: the root of the repository. Immutable.
	// +optional
	Path string `json:"path,omitempty"`

	// suspend stops all commits. Waiting and new CommitRequests fail with
	// TargetSuspended; on resume a resync brings Git up to date.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// window bounds how long edits collect when nobody saves them.
	// +optional
	Window WindowOptions `json:"window,omitempty,omitzero"`

	// attribution says how changes find their author: Audit (default) or None.
	// +optional
	// +default="Audit"
	// +k8s:optional
	Attribution AttributionMode `json:"attribution,omitempty"`

	// prune removes the files of captured objects that were found gone when a
	// complete list was compared with Git. Deletions seen as they happen are always
	// committed.
	// +optional
	Prune bool `json:"prune,omitempty"`
}

// WindowOptions bounds how long edits collect when nobody saves them.
type WindowOptions struct {
	// idleTimeout closes a window after this silence. At most maxDuration; default
	// 5m, or maxDuration where that is shorter.
	// +optional
	// +k8s:opaqueType
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// maxDuration closes a window this long after it opened. 1s to 24h; default 1h.
	// +optional
	// +default="1h"
	// +k8s:opaqueType
	MaxDuration *metav1.Duration `json:"maxDuration,omitempty"`
}

// GitTargetStatus is what kommit last saw of the target.
type GitTargetStatus struct {
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready is True when the target's first resync is done and its
	// changes are being captured; Stalled says what the user has to mend.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// commit is the hash of the last commit that kommit pushed for this target.
	// +optional
	Commit string `json:"commit,omitempty"`
}
