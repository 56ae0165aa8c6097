// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme" //nolint:depguard // the types of the built-in kinds; it does no I/O
)

// keepZeros returns want with the fields of have that the server does not store:
// "globalDefault: false" in a file is the same object as no such field. Which fields
// are so, the types of the built-in kinds say; a file with a field that they do not
// know is compared as it is.
func keepZeros(have, want map[string]any) map[string]any {
	u := unstructured.Unstructured{Object: have}
	typed, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		return want // not a built-in kind
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(have, typed, true); err != nil {
		return want
	}
	stored, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return want
	}
	return keepDropped(have, stored, want).(map[string]any)
}

// keepDropped puts into want what have says and stored does not.
func keepDropped(have, stored, want any) any {
	switch h := have.(type) {
	case map[string]any:
		s, okS := stored.(map[string]any)
		w, okW := want.(map[string]any)
		if !okS || !okW {
			return want
		}
		next := maps.Clone(w)
		for key, value := range h {
			switch {
			case has(w, key):
				next[key] = keepDropped(value, s[key], w[key])
			case !has(s, key):
				next[key] = value
			}
		}
		return next
	case []any:
		s, okS := stored.([]any)
		w, okW := want.([]any)
		if !okS || !okW || len(s) != len(h) || reflect.DeepEqual(h, w) {
			return want
		}
		next := slices.Clone(w)
		for i, j := range align(h, w) {
			if j >= 0 {
				next[j] = keepDropped(h[i], s[i], w[j])
			}
		}
		return next
	}
	return want
}
