// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// leaveOutAssigned deletes values of built-in kinds that the server assigned and
// nobody chose.
func leaveOutAssigned(u *unstructured.Unstructured, object map[string]any) {
	metadata, spec := child(object, "metadata"), child(object, "spec")
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Namespace"}:
		if labels := child(metadata, "labels"); labels["kubernetes.io/metadata.name"] == u.GetName() {
			leaveOutKeys(metadata, "labels", []string{"kubernetes.io/metadata.name"})
		}
		if leaveOutItems(spec, "finalizers", []string{"kubernetes"}); spec != nil && len(spec) == 0 {
			delete(object, "spec")
		}
	case schema.GroupKind{Kind: "ServiceAccount"}:
		leaveOutTokenSecrets(u, object)
	case schema.GroupKind{Kind: "Service"}:
		leaveOutServiceAssigned(u, spec)
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		// The binder leaves this note exactly when the volume was its choice.
		if _, assigned := u.GetAnnotations()["pv.kubernetes.io/bound-by-controller"]; assigned {
			delete(spec, "volumeName")
		}
	case schema.GroupKind{Kind: "PersistentVolume"}:
		if _, assigned := u.GetAnnotations()["pv.kubernetes.io/bound-by-controller"]; assigned {
			delete(spec, "claimRef")
		}
		// A volume kept for someone names the claim; the binder notes which
		// incarnation it was, and another one would find the volume released.
		for _, field := range []string{"uid", "resourceVersion"} {
			delete(child(spec, "claimRef"), field)
		}
	case schema.GroupKind{Kind: "Pod"}:
		leaveOutPodAssigned(u, metadata, spec)
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		if manual, _ := spec["manualSelector"].(bool); !manual && spec != nil {
			delete(spec, "selector") // generated from the uid
			leaveOutKeys(child(child(spec, "template"), "metadata"), "labels", jobLabels)
			leaveOutKeys(metadata, "labels", jobLabels) // by default those of the template
		}
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		claims, _ := spec["volumeClaimTemplates"].([]any)
		for _, claim := range claims {
			if claim, ok := claim.(map[string]any); ok {
				delete(claim, "status") // the server defaults a phase into the templates
			}
		}
	case schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:
		if object["aggregationRule"] != nil {
			delete(object, "rules") // the aggregation controller overwrites whatever is there
		}
	case schema.GroupKind{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}:
		for _, field := range []string{"username", "uid", "groups", "extra"} {
			delete(spec, field) // who asked, as the server saw them
		}
	}
}

// tokenSecret is the name, behind that of the service account, of the secret that
// controllers up to Kubernetes 1.23 made for it.
var tokenSecret = regexp.MustCompile(`^-token-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// leaveOutTokenSecrets deletes references to secrets with tokens that were made for
// the service account: they exist in this cluster only.
func leaveOutTokenSecrets(u *unstructured.Unstructured, object map[string]any) {
	secrets, ok := object["secrets"].([]any)
	if !ok || len(secrets) == 0 {
		return
	}
	secrets = slices.DeleteFunc(secrets, func(s any) bool {
		reference, _ := s.(map[string]any)
		name, _ := reference["name"].(string)
		rest := strings.TrimPrefix(name, u.GetName())
		return rest != name && tokenSecret.MatchString(rest) && !chosenBy(u, notTheControllers, "secrets", nameKey(name))
	})
	if object["secrets"] = secrets; len(secrets) == 0 {
		delete(object, "secrets")
	}
}

func notTheControllers(manager string) bool { return manager != "kube-controller-manager" }

// leaveOutPodAssigned deletes what admission and the scheduler put into a pod.
func leaveOutPodAssigned(u *unstructured.Unstructured, metadata, spec map[string]any) {
	if owned(u) {
		leaveOutKeys(metadata, "labels", podLabels)
	}
	if !managed(u) || spec == nil {
		return // nothing tells what was assigned from what was chosen
	}
	for _, field := range []string{"nodeName", "tolerations", "priority", "preemptionPolicy"} {
		if !chosen(u, "spec", field) {
			delete(spec, field)
		}
	}
	// The token that each pod gets, as a volume of a generated name.
	volumes, _ := spec["volumes"].([]any)
	for _, volume := range volumes {
		name, _ := child(map[string]any{"": volume}, "")["name"].(string)
		if !tokenVolume.MatchString(name) || chosen(u, "spec", "volumes", nameKey(name)) {
			continue
		}
		leaveOutNamed(spec, "volumes", name)
		for _, field := range []string{"containers", "initContainers", "ephemeralContainers"} {
			containers, _ := spec[field].([]any)
			for _, container := range containers {
				if container, ok := container.(map[string]any); ok {
					leaveOutNamed(container, "volumeMounts", name)
				}
			}
		}
	}
}

var tokenVolume = regexp.MustCompile(`^kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// leaveOutNamed deletes the entries of a list that have this name, and the list
// when that empties it.
func leaveOutNamed(parent map[string]any, field, name string) {
	list, ok := parent[field].([]any)
	if !ok {
		return
	}
	list = slices.DeleteFunc(list, func(v any) bool {
		entry, _ := v.(map[string]any)
		return entry["name"] == name
	})
	if parent[field] = list; len(list) == 0 {
		delete(parent, field)
	}
}

// leaveOutServiceAssigned deletes addresses, families and node ports that the
// server allocated. A headless service's "None" is always a choice.
func leaveOutServiceAssigned(u *unstructured.Unstructured, spec map[string]any) {
	if spec == nil {
		return
	}
	if ip, _ := spec["clusterIP"].(string); ip != "None" && !chosen(u, "spec", "clusterIP") {
		delete(spec, "clusterIP")
		if !chosen(u, "spec", "clusterIPs") {
			delete(spec, "clusterIPs")
		}
	}
	if !managed(u) {
		return // nothing tells an assigned port or family from a chosen one
	}
	for _, field := range []string{"ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"} {
		if !chosen(u, "spec", field) {
			delete(spec, field)
		}
	}
	ports, _ := spec["ports"].([]any)
	for _, port := range ports {
		port, ok := port.(map[string]any)
		if ok && !chosenPort(u, port) {
			delete(port, "nodePort")
		}
	}
}

func child(m map[string]any, field string) map[string]any {
	c, _ := m[field].(map[string]any)
	return c
}
