// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// spellQuantities returns want with the quantities of built-in kinds spelled as
// have spells them where they are equal: the server writes "1" for the "1000m" of a
// file, which is no change. Elsewhere the two are different strings.
func spellQuantities(have, want any) any {
	object, ok := want.(map[string]any)
	if !ok {
		return want
	}
	if group := identify(object).group; strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") {
		return want
	}
	return respell(have, want, nil)
}

func respell(have, want any, path []string) any {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return want
		}
		next := maps.Clone(w)
		for key, value := range w {
			if had, ok := h[key]; ok {
				next[key] = respell(had, value, append(slices.Clip(path), key))
			}
		}
		return next
	case []any:
		h, ok := have.([]any)
		if !ok {
			return want
		}
		next := slices.Clone(w)
		for i, value := range w {
			for j, had := range h {
				if named(had) != "" && named(had) == named(value) || named(had) == "" && i == j {
					next[i] = respell(had, value, path)
				}
			}
		}
		return next
	}
	if !holdsQuantities(path) || have == nil || want == nil {
		return want
	}
	a, errA := resource.ParseQuantity(fmt.Sprint(have))
	b, errB := resource.ParseQuantity(fmt.Sprint(want))
	if errA == nil && errB == nil && a.Cmp(b) == 0 {
		return have
	}
	return want
}

// holdsQuantities reports whether the schema of the built-in kinds has a quantity
// there.
func holdsQuantities(path []string) bool {
	// The keys from the end: the field itself, what it is in, and so on.
	at := func(i int) string {
		if i < len(path) {
			return path[len(path)-1-i]
		}
		return ""
	}
	switch at(0) {
	case "sizeLimit":
		return at(1) == "emptyDir"
	case "divisor":
		return at(1) == "resourceFieldRef"
	case "averageValue":
		return at(1) == "target"
	case "value":
		return at(1) == "target" || at(2) == "capacity"
	case "capacity", "maximumVolumeSize":
		return len(path) == 1 // CSIStorageCapacity
	}
	switch at(1) {
	case "requests", "limits":
		return at(2) == "resources"
	case "max", "min", "default", "defaultRequest", "maxLimitRequestRatio":
		return at(2) == "limits" && at(3) == "spec"
	case "hard", "capacity", "overhead":
		return path[0] == "spec"
	case "podFixed":
		return path[0] == "overhead"
	}
	return false
}

// named returns what tells an element of a list from the others, "" when nothing
// does.
func named(v any) string {
	m, _ := v.(map[string]any)
	if key := nameKeyOf(m); key != "" {
		return fmt.Sprintf("%s=%v", key, m[key])
	}
	return ""
}

// nameKeyOf returns the key whose value names the element; "" when none does.
func nameKeyOf(m map[string]any) string {
	for _, key := range []string{"name", "key", "id", "mountPath", "containerPort", "port", "ip", "host", "topologyKey", "type"} {
		switch m[key].(type) {
		case nil, map[string]any, []any:
		default:
			return key
		}
	}
	return ""
}
