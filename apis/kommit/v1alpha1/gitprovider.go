// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GitProvider is a Git repository and the right to write to it.
type GitProvider struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which repository, with which credentials, as whom.
	Spec GitProviderSpec `json:"spec"`

	// status is what kommit last saw of the repository. Written by the server.
	// +optional
	Status GitProviderStatus `json:"status,omitempty,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GitProviderList is a list of GitProviders.
type GitProviderList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the GitProviders.
	Items []GitProvider `json:"items"`
}

// GitProviderSpec says which repository, with which credentials, as whom.
type GitProviderSpec struct {
	// url of the repository: https://host/path, ssh://[user@]host[:port]/path or
	// the scp-like user@host:path. http:// is accepted only when the server runs
	// with --allow-insecure-http. It never holds credentials: those belong in the
	// Secret.
	// +k8s:required
	URL string `json:"url"`

	// secretRef names a Secret in the same namespace with the credentials:
	// username and password, bearerToken, an SSH key with known_hosts, ca.crt or a
	// client certificate, under the names that Kubernetes, Flux and Argo CD use.
	// Unset: the repository accepts anonymous writes.
	// +optional
	// +k8s:optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`

	// allowedBranches are globs (path.Match syntax) of the branches that GitTargets
	// may write to. Empty allows every branch.
	// +optional
	// +listType=atomic
	AllowedBranches []string `json:"allowedBranches,omitempty"`

	// commit says who commits.
	// +optional
	Commit CommitOptions `json:"commit,omitempty,omitzero"`

	// push limits the load on the remote.
	// +optional
	Push PushOptions `json:"push,omitempty,omitzero"`

	// timeout of one session with the remote. At least 1s; default 60s.
	// +optional
	// +default="60s"
	// +k8s:opaqueType
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// LocalObjectReference names an object in the same namespace.
type LocalObjectReference struct {
	// name of the object.
	// +k8s:required
	// +k8s:format=k8s-long-name
	Name string `json:"name"`
}

// CommitOptions says who commits and as whom.
type CommitOptions struct {
	// committer recorded in each commit, and the author of commits that belong to
	// nobody (a resync). Default: kommit <kommit@kommit.invalid>.
	// +optional
	Committer GitIdentity `json:"committer,omitempty,omitzero"`

	// author says how Kubernetes users become Git authors.
	// +optional
	Author AuthorOptions `json:"author,omitempty,omitzero"`

	// signing, when set, signs every commit as the committer.
	// +optional
	// +k8s:optional
	Signing *SigningOptions `json:"signing,omitempty"`
}

// GitIdentity is a name and an e-mail address as a commit carries them.
type GitIdentity struct {
	// name, without "<", ">" or line breaks. Default: kommit.
	// +optional
	// +default="kommit"
	Name string `json:"name,omitempty"`
	// email, without "<", ">" or white space. Default: kommit@kommit.invalid.
	// +optional
	// +default="kommit@kommit.invalid"
	Email string `json:"email,omitempty"`
}

// AuthorOptions says how Kubernetes users become Git authors.
type AuthorOptions struct {
	// emailDomain makes the e-mail address of a user whose name is not one already:
	// user@emailDomain, and namespace.name@serviceaccount.emailDomain for service
	// accounts. Default: kommit.invalid (a domain that never receives mail, RFC 2606).
	// +optional
	// +default="kommit.invalid"
	EmailDomain string `json:"emailDomain,omitempty"`
}

// SigningOptions says with what commits are signed.
type SigningOptions struct {
	// secretRef names a Secret in the same namespace with the signing key.
	SecretRef LocalObjectReference `json:"secretRef"`
}

// PushOptions limits the load on the remote.
type PushOptions struct {
	// maxPerMinute bounds the pushes to this repository, all branches together.
	// 0 or unset: no bound. GitHub recommends at most 6.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	MaxPerMinute int32 `json:"maxPerMinute,omitempty"`
}

// GitProviderStatus is what kommit last saw of the repository.
type GitProviderStatus struct {
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready is True when the repository was reached, accepted the
	// credentials and offered receive-pack.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}
