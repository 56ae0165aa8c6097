// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// managed reports whether the object says who owns its fields at all. Servers and
// proxies may strip that.
func managed(u *unstructured.Unstructured) bool {
	return len(managedFields(u)) > 0
}

// chosen reports whether a manager owns the field, which means that a client sent
// it: the registry assigns its values after ownership is written down.
func chosen(u *unstructured.Unstructured, path ...string) bool {
	for _, fields := range managedFields(u) {
		for _, name := range path[:len(path)-1] {
			fields = child(fields, "f:"+name)
		}
		if _, owned := fields["f:"+path[len(path)-1]]; owned {
			return true
		}
	}
	return false
}

// chosenPort is chosen for the nodePort of one entry of a Service's spec.ports,
// whose identity is its port and protocol.
func chosenPort(u *unstructured.Unstructured, port map[string]any) bool {
	for _, fields := range managedFields(u) {
		for key, owned := range child(child(fields, "f:spec"), "f:ports") {
			var id struct {
				Port     int64  `json:"port"`
				Protocol string `json:"protocol"`
			}
			if len(key) < 2 || key[:2] != "k:" || json.Unmarshal([]byte(key[2:]), &id) != nil {
				continue
			}
			if number, _ := port["port"].(int64); number != id.Port {
				continue
			}
			if protocol, _ := port["protocol"].(string); protocol != id.Protocol {
				continue
			}
			if owned, ok := owned.(map[string]any); ok {
				if _, ok := owned["f:nodePort"]; ok {
					return true
				}
			}
		}
	}
	return false
}

// managedFields returns the owned fields of each manager.
func managedFields(u *unstructured.Unstructured) []map[string]any {
	entries, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
	list, _ := entries.([]any)
	all := make([]map[string]any, 0, len(list))
	for _, entry := range list {
		if entry, ok := entry.(map[string]any); ok {
			if fields := child(entry, "fieldsV1"); fields != nil {
				all = append(all, fields)
			}
		}
	}
	return all
}
