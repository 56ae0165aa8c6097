// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// A server fills in what a manifest does not say. A file that somebody wrote need
// not say it either: its lines are theirs, and the object is the same (C14). So an
// edit does not add a field that holds what the server would put there anyway. This
// is done for the built-in kinds whose defaults are constants; whatever is not
// listed here is added, which is never wrong.

// podDefaults are relative to the spec of a pod. "*" stands for one of a list.
var podDefaults = map[string]any{
	"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
	"securityContext": map[string]any{}, "terminationGracePeriodSeconds": int64(30), "enableServiceLinks": true,

	"volumes.*.configMap.defaultMode": int64(420), "volumes.*.secret.defaultMode": int64(420),
	"volumes.*.downwardAPI.defaultMode": int64(420), "volumes.*.projected.defaultMode": int64(420),
	"volumes.*.hostPath.type":                                               "",
	"volumes.*.downwardAPI.items.*.fieldRef.apiVersion":                     "v1",
	"volumes.*.projected.sources.*.downwardAPI.items.*.fieldRef.apiVersion": "v1",
	"volumes.*.projected.sources.*.serviceAccountToken.expirationSeconds":   int64(3600),
	"volumes.*.ephemeral.volumeClaimTemplate.spec.volumeMode":               "Filesystem",
}

// containerDefaults are relative to a container.
var containerDefaults = map[string]any{
	"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": map[string]any{},
	"ports.*.protocol": "TCP", "env.*.valueFrom.fieldRef.apiVersion": "v1", "env.*.valueFrom.resourceFieldRef.divisor": "0",
	"lifecycle.postStart.httpGet.scheme": "HTTP", "lifecycle.preStop.httpGet.scheme": "HTTP",
	"lifecycle.postStart.httpGet.path": "/", "lifecycle.preStop.httpGet.path": "/",
}

// probeDefaults are relative to a probe.
var probeDefaults = map[string]any{
	"timeoutSeconds": int64(1), "periodSeconds": int64(10), "successThreshold": int64(1), "failureThreshold": int64(3),
	"httpGet.scheme": "HTTP", "httpGet.path": "/", "grpc.service": "",
}

// podSpecs is where kinds have the spec of a pod.
var podSpecs = map[string]string{
	"Pod": "spec", "Deployment.apps": "spec.template.spec", "ReplicaSet.apps": "spec.template.spec",
	"DaemonSet.apps": "spec.template.spec", "StatefulSet.apps": "spec.template.spec", "ReplicationController": "spec.template.spec",
	"Job.batch": "spec.template.spec", "CronJob.batch": "spec.jobTemplate.spec.template.spec", "PodTemplate": "template.spec",
}

// kindDefaults are those of kinds, from the top.
var kindDefaults = map[string]map[string]any{
	"Pod": {"spec.serviceAccountName": "default", "spec.serviceAccount": "default"},
	"Deployment.apps": {
		"spec.replicas": int64(1), "spec.revisionHistoryLimit": int64(10), "spec.progressDeadlineSeconds": int64(600),
		"spec.strategy.type":                   "RollingUpdate",
		"spec.strategy.rollingUpdate.maxSurge": "25%", "spec.strategy.rollingUpdate.maxUnavailable": "25%",
	},
	"ReplicaSet.apps":       {"spec.replicas": int64(1)},
	"ReplicationController": {"spec.replicas": int64(1)},
	"DaemonSet.apps": {
		"spec.revisionHistoryLimit":                  int64(10),
		"spec.updateStrategy.type":                   "RollingUpdate",
		"spec.updateStrategy.rollingUpdate.maxSurge": int64(0), "spec.updateStrategy.rollingUpdate.maxUnavailable": int64(1),
	},
	"StatefulSet.apps": {
		"spec.replicas": int64(1), "spec.revisionHistoryLimit": int64(10), "spec.podManagementPolicy": "OrderedReady", "spec.serviceName": "",
		"spec.updateStrategy.type": "RollingUpdate", "spec.updateStrategy.rollingUpdate.maxUnavailable": int64(1),
		"spec.updateStrategy.rollingUpdate.partition":          int64(0),
		"spec.persistentVolumeClaimRetentionPolicy.whenScaled": "Retain", "spec.persistentVolumeClaimRetentionPolicy.whenDeleted": "Retain",
		"spec.volumeClaimTemplates.*.apiVersion": "v1", "spec.volumeClaimTemplates.*.kind": "PersistentVolumeClaim",
		"spec.volumeClaimTemplates.*.spec.volumeMode": "Filesystem",
	},
	"Job.batch": {
		"spec.backoffLimit": int64(6), "spec.completions": int64(1), "spec.parallelism": int64(1), "spec.completionMode": "NonIndexed",
		"spec.suspend": false, "spec.manualSelector": false, "spec.podReplacementPolicy": "TerminatingOrFailed",
		"spec.template.metadata": map[string]any{},
	},
	"CronJob.batch": {
		"spec.concurrencyPolicy": "Allow", "spec.suspend": false, "spec.successfulJobsHistoryLimit": int64(3), "spec.failedJobsHistoryLimit": int64(1),
		"spec.jobTemplate.metadata": map[string]any{}, "spec.jobTemplate.spec.template.metadata": map[string]any{},
	},
	"Service": {
		"spec.type": "ClusterIP", "spec.sessionAffinity": "None", "spec.internalTrafficPolicy": "Cluster", "spec.externalTrafficPolicy": "Cluster",
		"spec.allocateLoadBalancerNodePorts": true, "spec.ports.*.protocol": "TCP", "spec.sessionAffinityConfig.clientIP.timeoutSeconds": int64(10800),
	},
	"PersistentVolumeClaim": {"spec.volumeMode": "Filesystem"},
	"PersistentVolume": {"spec.volumeMode": "Filesystem", "spec.persistentVolumeReclaimPolicy": "Retain", "spec.hostPath.type": "",
		"spec.claimRef.kind": "PersistentVolumeClaim", "spec.claimRef.apiVersion": "v1"},
	"Endpoints":                         {"subsets.*.ports.*.protocol": "TCP"},
	"EndpointSlice.discovery.k8s.io":    {"ports.*.protocol": "TCP"},
	"APIService.apiregistration.k8s.io": {"spec.service.port": int64(443)},
	"StorageClass.storage.k8s.io":       {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
	"CSIDriver.storage.k8s.io": {"spec.attachRequired": true, "spec.podInfoOnMount": false, "spec.fsGroupPolicy": "ReadWriteOnceWithFSType",
		"spec.volumeLifecycleModes": []any{"Persistent"}, "spec.requiresRepublish": false, "spec.storageCapacity": false, "spec.seLinuxMount": false, "spec.preventPodSchedulingIfMissing": false},
	"HorizontalPodAutoscaler.autoscaling":                           {"spec.minReplicas": int64(1)},
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io":        policyDefaults,
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io": policyDefaults,
	"MutatingAdmissionPolicy.admissionregistration.k8s.io":          policyDefaults,
	"MutatingAdmissionPolicyBinding.admissionregistration.k8s.io":   policyDefaults,
	"RoleBinding.rbac.authorization.k8s.io":                         {"roleRef.apiGroup": "rbac.authorization.k8s.io", "subjects.*.apiGroup": "rbac.authorization.k8s.io"},
	"ClusterRoleBinding.rbac.authorization.k8s.io":                  {"roleRef.apiGroup": "rbac.authorization.k8s.io", "subjects.*.apiGroup": "rbac.authorization.k8s.io"},
	"NetworkPolicy.networking.k8s.io":                               {"spec.ingress.*.ports.*.protocol": "TCP", "spec.egress.*.ports.*.protocol": "TCP"},
	"PriorityClass.scheduling.k8s.io":                               {"preemptionPolicy": "PreemptLowerPriority"},
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io":   webhookDefaults,
	"MutatingWebhookConfiguration.admissionregistration.k8s.io":     webhookDefaults,
	"CustomResourceDefinition.apiextensions.k8s.io":                 {"spec.conversion": map[string]any{"strategy": "None"}, "spec.conversion.webhook.clientConfig.service.port": int64(443)},
}

var webhookDefaults = map[string]any{
	"webhooks.*.failurePolicy": "Fail", "webhooks.*.matchPolicy": "Equivalent", "webhooks.*.timeoutSeconds": int64(10),
	"webhooks.*.namespaceSelector": map[string]any{}, "webhooks.*.objectSelector": map[string]any{},
	"webhooks.*.reinvocationPolicy": "Never", "webhooks.*.rules.*.scope": "*", "webhooks.*.clientConfig.service.port": int64(443),
}

var policyDefaults = map[string]any{
	"spec.failurePolicy":                "Fail",
	"spec.matchConstraints.matchPolicy": "Equivalent", "spec.matchConstraints.namespaceSelector": map[string]any{},
	"spec.matchConstraints.objectSelector": map[string]any{}, "spec.matchConstraints.resourceRules.*.scope": "*",
	"spec.matchResources.matchPolicy": "Equivalent", "spec.matchResources.namespaceSelector": map[string]any{},
	"spec.matchResources.objectSelector": map[string]any{}, "spec.matchResources.resourceRules.*.scope": "*",
}

// omitDefaults returns want without the defaults that have does not spell out.
func omitDefaults(have, want map[string]any) map[string]any {
	i := identify(want)
	kind := i.kind
	if i.group != "" {
		kind += "." + i.group
	}
	rules, ok := have["rules"]
	if list, isList := rules.([]any); ok && (!isList || len(list) == 0) && kind == "ClusterRole.rbac.authorization.k8s.io" && want["aggregationRule"] != nil {
		want = maps.Clone(want)
		want["rules"] = rules // none, in one of several spellings
	}
	d := defaulted{name: kind, kind: kindDefaults[kind], podSpec: podSpecs[kind], object: want}
	if d.kind == nil && d.podSpec == "" {
		return want
	}
	return d.omit(have, want, "").(map[string]any)
}

// defaulted knows the defaults of one kind.
type defaulted struct {
	name    string
	kind    map[string]any
	podSpec string
	object  map[string]any
}

func (d defaulted) omit(have, want any, path string) any {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return want
		}
		next := maps.Clone(w)
		for key, value := range w {
			at := strings.TrimPrefix(path+"."+key, ".")
			if had, ok := h[key]; ok {
				next[key] = d.omit(had, value, at)
			} else if d.is(at, value, w) {
				delete(next, key)
			}
		}
		return next
	case []any:
		h, ok := have.([]any)
		if !ok {
			return want
		}
		next := slices.Clone(w)
		for i, j := range align(h, w) {
			if j >= 0 {
				next[j] = d.omit(h[i], w[j], path+".*")
			}
		}
		return next
	}
	return want
}

// is reports whether the server would put the value there. siblings are the fields
// beside it.
func (d defaulted) is(path string, value any, siblings map[string]any) bool {
	if byDefault, ok := d.kind[path]; ok {
		return reflect.DeepEqual(value, byDefault)
	}
	if byDefault := d.derived(path, siblings); byDefault != nil {
		return reflect.DeepEqual(value, byDefault)
	}
	if m, ok := value.(map[string]any); ok && len(m) > 0 {
		// A structure of nothing but defaults.
		for key, v := range m {
			if !d.is(path+"."+key, v, m) {
				return false
			}
		}
		return true
	}
	inPod, ok := strings.CutPrefix(path, d.podSpec+".")
	if !ok || d.podSpec == "" {
		return false
	}
	if byDefault, ok := podDefaults[inPod]; ok {
		return reflect.DeepEqual(value, byDefault)
	}
	if inPod == "serviceAccount" { // the old name of a field, kept equal
		return reflect.DeepEqual(value, siblings["serviceAccountName"])
	}
	list, inContainer, ok := strings.Cut(inPod, ".*.")
	if !ok || list != "containers" && list != "initContainers" {
		return false
	}
	if inContainer == "imagePullPolicy" {
		image, _ := siblings["image"].(string)
		return value == pullPolicy(image)
	}
	if byDefault, ok := containerDefaults[inContainer]; ok {
		return reflect.DeepEqual(value, byDefault)
	}
	probe, inProbe, _ := strings.Cut(inContainer, ".")
	if slices.Contains([]string{"livenessProbe", "readinessProbe", "startupProbe"}, probe) {
		byDefault, ok := probeDefaults[inProbe]
		return ok && reflect.DeepEqual(value, byDefault)
	}
	return false
}

// derived returns a default that follows from another field, nil when there is none.
func (d defaulted) derived(path string, siblings map[string]any) any {
	switch d.name + " " + path {
	case "Service spec.ports.*.targetPort":
		return siblings["port"]
	case "Service spec.clusterIPs":
		return []any{siblings["clusterIP"]}
	case "ReplicationController spec.selector", "ReplicationController metadata.labels", "Job.batch metadata.labels":
		return child(child(child(d.object, "spec"), "template"), "metadata")["labels"]
	case "CustomResourceDefinition.apiextensions.k8s.io spec.names.listKind":
		kind, _ := siblings["kind"].(string)
		return kind + "List"
	case "CustomResourceDefinition.apiextensions.k8s.io spec.names.singular":
		kind, _ := siblings["kind"].(string)
		return strings.ToLower(kind)
	}
	if d.podSpec != "" && strings.HasSuffix(path, ".resources.requests") {
		return siblings["limits"]
	}
	return nil
}

// pullPolicy returns the default for an image: a tag that may move is pulled anew.
func pullPolicy(image string) string {
	name, _, digest := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "latest" || !tagged && !digest {
		return "Always"
	}
	return "IfNotPresent"
}
