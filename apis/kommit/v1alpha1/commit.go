// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Commit is a commit on the branch of a GitTarget, as the remote has it.
type Commit struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata has the hash as its name, and the time of the commit.
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// hash of the commit.
	Hash string `json:"hash"`

	// parents are the hashes of the commits before it.
	// +optional
	// +listType=atomic
	Parents []string `json:"parents,omitempty"`

	// author is who made the changes, and when.
	Author CommitSignature `json:"author"`

	// committer is who made the commit, and when.
	Committer CommitSignature `json:"committer"`

	// message is the whole message, without the line break that Git ends it with.
	// +optional
	Message string `json:"message,omitempty"`

	// files that the commit changed below the GitTarget's path.
	// +optional
	// +listType=atomic
	Files []ChangedFile `json:"files,omitempty"`

	// commitRequestRef names the CommitRequest that asked for the commit, as long as
	// there is one.
	// +optional
	// +k8s:optional
	CommitRequestRef *LocalObjectReference `json:"commitRequestRef,omitempty"`

	// diff of the files against the first parent, unified, as git apply takes it. Not
	// in lists.
	// +optional
	Diff string `json:"diff,omitempty"`

	// truncated says that diff or files were cut for their size.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
}

// CommitSignature is a name in a commit, with its time.
type CommitSignature struct {
	// name as it is in the commit.
	Name string `json:"name"`

	// email as it is in the commit.
	// +optional
	Email string `json:"email,omitempty"`

	// time to the second.
	// +optional
	// +k8s:opaqueType
	Time metav1.Time `json:"time,omitempty,omitzero"`
}

// FileChange is what a commit did to a file.
// +enum
type FileChange string

// What a commit can do to a file.
const (
	FileAdded    FileChange = "Added"
	FileModified FileChange = "Modified"
	FileDeleted  FileChange = "Deleted"
)

// ChangedFile is a file in a commit.
type ChangedFile struct {
	// path from the root of the repository.
	Path string `json:"path"`

	// change is Added, Modified or Deleted.
	Change FileChange `json:"change"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CommitList is a list of Commits, newest first.
type CommitList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the Commits.
	Items []Commit `json:"items"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CommitListOptions are the parameters of a list of Commits, with the names that
// other lists have.
type CommitListOptions struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`

	// limit is the greatest number of commits to answer; 1 to 500, default 50.
	// +optional
	Limit int64 `json:"limit,omitempty"`

	// continue goes on behind the page that it came with.
	// +optional
	Continue string `json:"continue,omitempty"`
}
