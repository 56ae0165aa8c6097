// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// managed reports whether the object says who owns its fields at all. Servers and
// proxies may strip that.
func managed(u *unstructured.Unstructured) bool {
	return len(managedFields(u)) > 0
}

// chosen reports whether a manager owns the field, which means that a client sent
// it: admission and the registry assign their values after ownership is written
// down. The last part of the path may be the key of a list's entry, see nameKey.
func chosen(u *unstructured.Unstructured, path ...string) bool {
	return chosenBy(u, func(string) bool { return true }, path...)
}

// chosenBy is chosen by one of certain managers.
func chosenBy(u *unstructured.Unstructured, manager func(string) bool, path ...string) bool {
	for _, owner := range managedFields(u) {
		fields := owner.fields
		for _, name := range path[:len(path)-1] {
			fields = child(fields, "f:"+name)
		}
		last := path[len(path)-1]
		if !strings.HasPrefix(last, "k:") {
			last = "f:" + last
		}
		if _, owned := fields[last]; owned && manager(owner.manager) {
			return true
		}
	}
	return false
}

// nameKey is how ownership names the entry of a list by its name.
func nameKey(name string) string { return `k:{"name":"` + name + `"}` }

// chosenPort is chosen for the nodePort of one entry of a Service's spec.ports,
// whose identity is its port and protocol.
func chosenPort(u *unstructured.Unstructured, port map[string]any) bool {
	for _, owner := range managedFields(u) {
		for key, owned := range child(child(owner.fields, "f:spec"), "f:ports") {
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

// ownership is what one manager owns.
type ownership struct {
	manager string
	fields  map[string]any
}

func managedFields(u *unstructured.Unstructured) []ownership {
	entries, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
	list, _ := entries.([]any)
	all := make([]ownership, 0, len(list))
	for _, entry := range list {
		if entry, ok := entry.(map[string]any); ok {
			if fields := child(entry, "fieldsV1"); fields != nil {
				manager, _ := entry["manager"].(string)
				all = append(all, ownership{manager, fields})
			}
		}
	}
	return all
}
