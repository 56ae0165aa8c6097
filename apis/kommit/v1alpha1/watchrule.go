// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// WatchRule says which objects of its own namespace are captured into a
// GitTarget.
type WatchRule struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is captured, and into which target.
	Spec WatchRuleSpec `json:"spec"`

	// status is what kommit last saw of the rule. Written by the server.
	// +optional
	Status WatchRuleStatus `json:"status,omitempty,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// WatchRuleList is a list of WatchRules.
type WatchRuleList struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the WatchRules.
	Items []WatchRule `json:"items"`
}

// WatchRuleSpec says what is captured, and into which target.
type WatchRuleSpec struct {
	// gitTargetRef names the GitTarget in the same namespace.
	GitTargetRef LocalObjectReference `json:"gitTargetRef"`

	// resources that are captured: an object is when any entry selects it. At least
	// one. Secrets are refused: they would reach Git in the clear.
	// +listType=atomic
	// +k8s:required
	Resources []WatchedResources `json:"resources"`
}

// WatchedResources selects objects by API group, resource, name and labels.
type WatchedResources struct {
	// apiGroups of the resources; "" is the core group. Default: the core group.
	// +optional
	// +listType=atomic
	APIGroups []string `json:"apiGroups,omitempty"`

	// resources by their plural names ("deployments"). At least one; no
	// subresources, no wildcard.
	// +listType=atomic
	// +k8s:required
	Resources []string `json:"resources"`

	// names of the objects. Empty selects every name.
	// +optional
	// +listType=atomic
	Names []string `json:"names,omitempty"`

	// labelSelector over the objects' labels. Unset selects every object. An object
	// that leaves the selector is removed from Git.
	// +optional
	// +k8s:opaqueType
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// WatchRuleStatus is what kommit last saw of the rule.
type WatchRuleStatus struct {
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready is True when each resource of the rule is being captured;
	// Stalled says what the user has to mend.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}
