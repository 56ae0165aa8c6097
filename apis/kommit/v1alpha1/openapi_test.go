// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/openapi"
)

func definitions(t *testing.T) map[string]spec.Schema {
	t.Helper()
	model := strings.TrimSuffix(v1alpha1.CommitRequest{}.OpenAPIModelName(), "CommitRequest")
	ours := map[string]spec.Schema{}
	for name, definition := range openapi.GetOpenAPIDefinitions(func(path string) spec.Ref {
		return spec.MustCreateRef(common.EscapeJsonPointer(path))
	}) {
		if kind, ok := strings.CutPrefix(name, model); ok {
			ours[kind] = definition.Schema
		}
	}
	if len(ours) == 0 {
		t.Fatalf("no schema is named %s*", model)
	}
	return ours
}

// kubectl explain shows nothing but these.
func TestEveryFieldIsDescribed(t *testing.T) {
	for kind, schema := range definitions(t) {
		if schema.Description == "" {
			t.Errorf("%s has no description", kind)
		}
		for field, property := range schema.Properties {
			if property.Description == "" {
				t.Errorf("%s.%s has no description", kind, field)
			}
			if strings.Contains(property.Description, "+k8s") || strings.Contains(property.Description, "TODO") {
				t.Errorf("%s.%s shows what is not for users: %s", kind, field, property.Description)
			}
		}
	}
}

func TestDefaultsAndEnumsAreInTheSchema(t *testing.T) {
	ours := definitions(t)
	for _, test := range []struct {
		kind, field string
		want        any
	}{
		{"CommitRequestSpec", "whenNothingToCommit", "Resolve"},
		{"CommitRequestSpec", "ttlSecondsAfterFinished", 604800},
		{"RequestWindow", "attach", "CurrentOrNext"},
		{"RequestWindow", "attachTimeout", "5s"},
		{"RequestWindow", "maxDuration", "2s"},
		{"GitTargetSpec", "attribution", "Audit"},
		{"WindowOptions", "maxDuration", "1h"},
		{"GitProviderSpec", "timeout", "60s"},
		{"AuthorOptions", "emailDomain", "kommit.invalid"},
	} {
		got := ours[test.kind].Properties[test.field].Default
		if number, ok := got.(float64); ok {
			got = int(number)
		}
		if got != test.want {
			t.Errorf("%s.%s: default is %#v, want %#v", test.kind, test.field, got, test.want)
		}
	}
	for kind, field := range map[string]string{"CommitRequestSpec": "whenNothingToCommit", "RequestWindow": "attach", "GitTargetSpec": "attribution"} {
		if got := len(ours[kind].Properties[field].Enum); got != 2 {
			t.Errorf("%s.%s: %d values in the enum, want 2", kind, field, got)
		}
	}
}
