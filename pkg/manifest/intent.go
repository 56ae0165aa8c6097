// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What Git does not keep, by exact name, each with its reason (C2). Whatever is
// not named here is kept, also when it is empty.
var (
	// metadataLeftOut are fields of metadata.
	metadataLeftOut = []string{
		"uid",                        // identifies this one incarnation
		"resourceVersion",            // the server's clock; a file that has it cannot be applied later
		"generation",                 // counted by the server
		"creationTimestamp",          // set by the server
		"deletionTimestamp",          // set by the server; C4 speaks of deletions
		"deletionGracePeriodSeconds", // set by the server with it
		"selfLink",                   // set by old servers, derived
		"managedFields",              // bookkeeping of who owns which field
		"generateName",               // the name it led to is kept; both together read as two objects
		"ownerReferences",            // by uid: elsewhere the garbage collector would take the owner for gone
	}

	// annotationsLeftOut are written by controllers and clients about the object.
	annotationsLeftOut = []string{
		"kubectl.kubernetes.io/last-applied-configuration", // kubectl's copy of the whole object, old secrets included
		"deployment.kubernetes.io/revision",                // counted by the deployment controller
		"deployment.kubernetes.io/revision-history",        // the revisions that a replica set was before
		"deployment.kubernetes.io/desired-replicas",        // its controller's share of the rollout
		"deployment.kubernetes.io/max-replicas",            // its controller's share of the rollout
		"deprecated.daemonset.template.generation",         // counted by the daemon set strategy
		"control-plane.alpha.kubernetes.io/leader",         // a leader election's heartbeat, every few seconds
		"endpoints.kubernetes.io/last-change-trigger-time", // a time stamp for metrics
		"autoscaling.alpha.kubernetes.io/conditions",       // status of an autoscaler in an old version
		"autoscaling.alpha.kubernetes.io/current-metrics",  // status of an autoscaler in an old version
		"pv.kubernetes.io/bind-completed",                  // the volume binder's progress
		"pv.kubernetes.io/bound-by-controller",             // says that the other half was assigned
		"pv.kubernetes.io/migrated-to",                     // the volume controller's note of the driver
		"volume.kubernetes.io/selected-node",               // the scheduler's choice
		"volume.kubernetes.io/storage-provisioner",         // derived from the storage class
		"volume.beta.kubernetes.io/storage-provisioner",    // the same under its old name
		"volume.kubernetes.io/storage-resizer",             // derived from the storage class
		"batch.kubernetes.io/job-tracking",                 // put on jobs by servers up to 1.26
		"kubernetes.io/limit-ranger",                       // admission's note of the defaults it set
	}

	// finalizersLeftOut are put on by admission and controllers of the server itself,
	// which does it again wherever the file is applied.
	finalizersLeftOut = []string{
		"kubernetes.io/pvc-protection",
		"kubernetes.io/pv-protection",
		"kubernetes.io/vac-protection",
		"kubernetes.io/pv-controller",
		"service.kubernetes.io/load-balancer-cleanup",
		"customresourcecleanup.apiextensions.k8s.io",
		"resource.kubernetes.io/delete-protection",
		"networking.k8s.io/service-cidr-finalizer",
		"foregroundDeletion", // says how a running deletion proceeds
		"orphan",             // says how a running deletion proceeds
	}

	// podLabels tell the pods of one owner apart. With them, and without the owner,
	// the owner's controller elsewhere would adopt the pod and scale another one down.
	podLabels = []string{
		"pod-template-hash", "controller-revision-hash", "pod-template-generation",
		"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
		"batch.kubernetes.io/job-completion-index",
		"controller-uid", "batch.kubernetes.io/controller-uid",
		"job-name", "batch.kubernetes.io/job-name",
	}

	// jobLabels carry the uid, or repeat the name, of the job that the server puts
	// into its pod template; applied elsewhere they fail validation.
	jobLabels = []string{
		"controller-uid", "batch.kubernetes.io/controller-uid",
		"job-name", "batch.kubernetes.io/job-name",
	}
)

// Captured reports whether the object is someone's intent. Objects that a
// controller owns are not (C2), nor is what the control plane itself publishes.
func Captured(u *unstructured.Unstructured) bool {
	if owned(u) {
		return false
	}
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "ConfigMap"}:
		return u.GetName() != "kube-root-ca.crt"
	case schema.GroupKind{Kind: "Service"}:
		return u.GetNamespace() != "default" || u.GetName() != "kubernetes"
	case schema.GroupKind{Kind: "Endpoints"}:
		// The controller's Endpoints have no owner reference, only this label.
		return u.GetLabels()["endpoints.kubernetes.io/managed-by"] != "endpoint-controller"
	case schema.GroupKind{Kind: "ServiceAccount"}:
		// Each namespace gets one; it is of interest once someone gave it something.
		return u.GetName() != "default" || len(intent(u)) > len(first) || len(u.GetLabels())+len(u.GetAnnotations()) > 0
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		// The server registers its own groups, and those of CRDs.
		_, automatic := u.GetLabels()["kube-aggregator.kubernetes.io/automanaged"]
		return !automatic
	}
	return true
}

// owned reports whether a controller made the object and keeps it as it is.
func owned(u *unstructured.Unstructured) bool {
	for _, owner := range u.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller {
			return true
		}
	}
	return false
}

// SensitiveResource reports whether objects of the resource hold secrets, which
// must never reach Git, the journal or a log in the clear (DESIGN 4.3). The
// resource may be given by its plural or singular name, in any case.
func SensitiveResource(group, resource string) bool {
	return group == "" && (strings.EqualFold(resource, "secrets") || strings.EqualFold(resource, "secret"))
}

// intent returns a copy of the object that holds only what someone chose (C2).
func intent(u *unstructured.Unstructured) map[string]any {
	// What is left out whole goes before the copy: it is often the larger part.
	object := maps.Clone(u.Object)
	delete(object, "status") // what the controllers found, not what was asked for
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, field := range metadataLeftOut {
			delete(metadata, field)
		}
		object["metadata"] = metadata
	}
	object = runtime.DeepCopyJSON(object)
	leaveOutAssigned(u, object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		leaveOutKeys(metadata, "annotations", annotationsLeftOut)
		leaveOutItems(metadata, "finalizers", finalizersLeftOut)
	}
	leaveOutNullTimes(object)
	return object
}

// leaveOutKeys deletes keys of a map field, and the field when that empties it. A
// map that was empty before is a value and stays.
func leaveOutKeys(parent map[string]any, field string, keys []string) {
	m, ok := parent[field].(map[string]any)
	if !ok || len(m) == 0 {
		return
	}
	for _, key := range keys {
		delete(m, key)
	}
	if len(m) == 0 {
		delete(parent, field)
	}
}

// leaveOutItems is leaveOutKeys for a list of strings.
func leaveOutItems(parent map[string]any, field string, items []string) {
	list, ok := parent[field].([]any)
	if !ok || len(list) == 0 {
		return
	}
	list = slices.DeleteFunc(list, func(v any) bool {
		s, ok := v.(string)
		return ok && slices.Contains(items, s)
	})
	if parent[field] = list; len(list) == 0 {
		delete(parent, field)
	}
}

// leaveOutNullTimes deletes "creationTimestamp: null", which encoders of typed
// objects write into the metadata of pod and claim templates.
func leaveOutNullTimes(value any) {
	switch value := value.(type) {
	case map[string]any:
		if metadata, ok := value["metadata"].(map[string]any); ok {
			if t, has := metadata["creationTimestamp"]; has && t == nil {
				delete(metadata, "creationTimestamp")
			}
		}
		for _, v := range value {
			leaveOutNullTimes(v)
		}
	case []any:
		for _, v := range value {
			leaveOutNullTimes(v)
		}
	}
}
