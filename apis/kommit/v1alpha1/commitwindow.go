// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fields of a CommitWindow that can be selected on, besides its name and
// namespace.
const (
	CommitWindowTargetField = "status.gitTargetRef.name"
	CommitWindowAuthorField = "status.author"
)

// +genclient
// +genclient:onlyVerbs=get,list,watch
// +genclient:method=GetDiff,verb=get,subresource=diff,result=CommitWindowDiff
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CommitWindow is a window that is open now: the edits of one author to one
// GitTarget that the next save, or the window's own timers, turn into one commit.
// It is there to look at; no client creates, changes or deletes one.
type CommitWindow struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the window as it is now.
	// +optional
	Status CommitWindowStatus `json:"status,omitempty,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CommitWindowList is a list of CommitWindows.
type CommitWindowList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the CommitWindows.
	Items []CommitWindow `json:"items"`
}

// AuthorKind says who a window collects for.
// +enum
type AuthorKind string

const (
	// AuthorUser is the one user in author.
	AuthorUser AuthorKind = "User"
	// AuthorUnresolved is nobody: attribution found no author for these changes. No
	// request can claim the window.
	AuthorUnresolved AuthorKind = "Unresolved"
	// AuthorShared is everybody: the GitTarget has attribution None.
	AuthorShared AuthorKind = "Shared"
)

// CommitWindowStatus is a window as it is now.
type CommitWindowStatus struct {
	// gitTargetRef names the GitTarget that the window commits to.
	GitTargetRef LocalObjectReference `json:"gitTargetRef"`

	// authorKind says who the window collects for: User, Unresolved or Shared.
	AuthorKind AuthorKind `json:"authorKind"`

	// author is the user name, with authorKind User.
	// +optional
	Author string `json:"author,omitempty"`

	// commitRequestRef names the CommitRequest that holds the window. Unset: nobody
	// has asked for it yet.
	// +optional
	// +k8s:optional
	CommitRequestRef *LocalObjectReference `json:"commitRequestRef,omitempty"`

	// openTime is when the first change came in.
	// +optional
	// +k8s:opaqueType
	OpenTime metav1.MicroTime `json:"openTime,omitempty,omitzero"`

	// closeTime is when the window closes by itself if nothing else happens. Unset
	// while its CommitRequest is being caught up with, and for a window without
	// timers.
	// +optional
	// +k8s:opaqueType
	CloseTime *metav1.MicroTime `json:"closeTime,omitempty"`

	// changeCount is the number of objects changed.
	ChangeCount int32 `json:"changeCount"`

	// bytes of content that the window holds.
	Bytes int64 `json:"bytes"`

	// changes, the last one to each object, in the order in which the objects were
	// first seen.
	// +optional
	// +listType=atomic
	Changes []WindowChange `json:"changes,omitempty"`
}

// WindowChange is what a window does to one object.
type WindowChange struct {
	// operation is create, update or delete.
	Operation string `json:"operation"`

	// group of the object's resource; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// resource is the plural name, such as configmaps.
	Resource string `json:"resource"`

	// namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	Name string `json:"name"`

	// path of the file in the repository.
	Path string `json:"path"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CommitWindowDiff is what closing a CommitWindow now would commit.
type CommitWindowDiff struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata has the name and the namespace of the CommitWindow.
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// branch that would be committed to.
	Branch string `json:"branch"`

	// parent is the hash that it would be made on. Empty: the branch does not exist
	// yet.
	// +optional
	Parent string `json:"parent,omitempty"`

	// files that would change.
	// +optional
	// +listType=atomic
	Files []ChangedFile `json:"files,omitempty"`

	// diff of these files, unified, as git apply takes it.
	// +optional
	Diff string `json:"diff,omitempty"`

	// truncated says that diff or files were cut for their size.
	// +optional
	Truncated bool `json:"truncated,omitempty"`

	// notSaved says which objects cannot be written to their files, and why.
	// +optional
	// +listType=atomic
	NotSaved []string `json:"notSaved,omitempty"`
}
