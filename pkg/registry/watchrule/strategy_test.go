// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package watchrule

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/install"
	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

func newRule(resources ...v1alpha1.WatchedResources) *v1alpha1.WatchRule {
	return &v1alpha1.WatchRule{
		ObjectMeta: metav1.ObjectMeta{Name: "apps", Namespace: "team"},
		Spec:       v1alpha1.WatchRuleSpec{GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"}, Resources: resources},
	}
}

func testStrategy() strategy {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return newStrategy(scheme)
}

func TestValidate(t *testing.T) {
	configmaps := []string{"configmaps"}
	for _, test := range []struct {
		name string
		rule *v1alpha1.WatchRule
		want string // the field of the only error
	}{
		{"all selectors", newRule(v1alpha1.WatchedResources{
			APIGroups: []string{"", "apps"}, Resources: []string{"configmaps", "deployments"}, Names: []string{"a", "b:c"},
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}), ""},
		{"4.3 Secrets are accepted, and Stalled later", newRule(v1alpha1.WatchedResources{Resources: []string{"secrets"}}), ""},
		{"nothing", newRule(), "spec.resources"},
		{"an entry without resources", newRule(v1alpha1.WatchedResources{APIGroups: []string{"apps"}}), "spec.resources[0].resources"},
		{"every group", newRule(v1alpha1.WatchedResources{APIGroups: []string{"*"}, Resources: configmaps}), "spec.resources[0].apiGroups[0]"},
		{"every resource", newRule(v1alpha1.WatchedResources{Resources: configmaps}, v1alpha1.WatchedResources{Resources: []string{"*"}}), "spec.resources[1].resources[0]"},
		{"a subresource", newRule(v1alpha1.WatchedResources{Resources: []string{"deployments/scale"}}), "spec.resources[0].resources[0]"},
		{"a kind", newRule(v1alpha1.WatchedResources{Resources: []string{"ConfigMap"}}), "spec.resources[0].resources[0]"},
		{"an empty resource", newRule(v1alpha1.WatchedResources{Resources: []string{""}}), "spec.resources[0].resources[0]"},
		{"a name with a slash", newRule(v1alpha1.WatchedResources{Resources: configmaps, Names: []string{"a", "b/c"}}), "spec.resources[0].names[1]"},
		{"an empty name", newRule(v1alpha1.WatchedResources{Resources: configmaps, Names: []string{""}}), "spec.resources[0].names[0]"},
		{"a selector that is none", newRule(v1alpha1.WatchedResources{Resources: configmaps, LabelSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}},
		}}), "spec.resources[0].labelSelector.matchExpressions[0].operator"},
	} {
		t.Run(test.name, func(t *testing.T) {
			errs := testStrategy().Validate(t.Context(), test.rule)
			if test.want == "" && len(errs) != 0 || test.want != "" && (len(errs) != 1 || errs[0].Field != test.want) {
				t.Errorf("got %v, want an error at %q", errs, test.want)
			}
		})
	}
}

func TestSecretsAreWarnedOf(t *testing.T) {
	s := testStrategy()
	rule := newRule(v1alpha1.WatchedResources{Resources: []string{"configmaps", "secrets"}})
	for verb, warnings := range map[string][]string{
		"create": s.WarningsOnCreate(t.Context(), rule),
		"update": s.WarningsOnUpdate(t.Context(), rule, newRule()),
	} {
		if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "spec.resources[0].resources[1]: ") {
			t.Errorf("%s: got %q, want one that starts with spec.resources[0].resources[1]", verb, warnings)
		}
	}
	other := newRule(v1alpha1.WatchedResources{APIGroups: []string{"example.com"}, Resources: []string{"secrets"}})
	if warnings := s.WarningsOnCreate(t.Context(), other); len(warnings) != 0 {
		t.Errorf("secrets of another group: %q", warnings)
	}
}

func TestTheTargetMayChange(t *testing.T) {
	old := newRule(v1alpha1.WatchedResources{Resources: []string{"configmaps"}})
	changed := old.DeepCopy()
	changed.Spec.GitTargetRef.Name = "stage"
	if errs := testStrategy().ValidateUpdate(t.Context(), changed, old); len(errs) != 0 {
		t.Errorf("got %v", errs)
	}
}
