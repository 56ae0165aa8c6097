// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watchrule is the registry of WatchRules (DESIGN 4.3).
package watchrule

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/manifest"
	"github.com/kommit-dev/kommit/pkg/registry"
)

type strategy struct {
	registry.Strategy
}

var _ registry.ResourceStrategy = strategy{}

func newStrategy(scheme *runtime.Scheme) strategy {
	return strategy{registry.NewStrategy(scheme)}
}

// PrepareForCreate drops a status that a client sent.
func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	rule := obj.(*v1alpha1.WatchRule)
	rule.Status = v1alpha1.WatchRuleStatus{}
	rule.Generation = 1
}

// PrepareForUpdate keeps the status and counts a changed spec.
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	rule, stored := obj.(*v1alpha1.WatchRule), old.(*v1alpha1.WatchRule)
	rule.Status = stored.Status
	rule.Generation = registry.Generation(stored, rule.Spec, stored.Spec)
}

// Validate checks a new rule.
func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	rule := obj.(*v1alpha1.WatchRule)
	return append(s.ValidateNew(ctx, rule), validateResources(rule.Spec.Resources)...)
}

// WarningsOnCreate says of a Secret what its status will say: it is accepted, so
// that a bundle is not torn apart, and captured never (DESIGN 4.3).
func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return warnings(obj.(*v1alpha1.WatchRule))
}

// ValidateUpdate checks a changed rule.
func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	rule := obj.(*v1alpha1.WatchRule)
	return append(s.ValidateChanged(ctx, obj, old), validateResources(rule.Spec.Resources)...)
}

// WarningsOnUpdate is WarningsOnCreate.
func (strategy) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	return warnings(obj.(*v1alpha1.WatchRule))
}

func resourcesPath(i int) *field.Path {
	return field.NewPath("spec", "resources").Index(i)
}

func validateResources(resources []v1alpha1.WatchedResources) field.ErrorList {
	var errs field.ErrorList
	for i, watched := range resources {
		at := resourcesPath(i)
		for j, group := range watched.APIGroups {
			if group == "" { // the core group
				continue
			}
			for _, message := range validation.IsDNS1123Subdomain(group) {
				errs = append(errs, field.Invalid(at.Child("apiGroups").Index(j), group, message+`; name each group, there is no wildcard ("" is the core group)`))
			}
		}
		for j, resource := range watched.Resources {
			at := at.Child("resources").Index(j)
			switch {
			case resource == "":
				errs = append(errs, field.Required(at, `must be the plural name of a resource, such as "deployments"`))
			case strings.Contains(resource, "/"):
				errs = append(errs, field.Invalid(at, resource, "must not be a subresource: name the resource itself"))
			default:
				for _, message := range validation.IsDNS1123Subdomain(resource) {
					errs = append(errs, field.Invalid(at, resource, message+`; must be the plural name of a resource, such as "deployments", there is no wildcard`))
				}
			}
		}
		for j, name := range watched.Names {
			at := at.Child("names").Index(j)
			if name == "" {
				errs = append(errs, field.Required(at, "must be the name of an object; an empty list selects every name"))
			}
			for _, message := range content.IsPathSegmentName(name) {
				errs = append(errs, field.Invalid(at, name, message))
			}
		}
		errs = append(errs, metav1validation.ValidateLabelSelector(watched.LabelSelector,
			metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	}
	return errs
}

func warnings(rule *v1alpha1.WatchRule) []string {
	var warnings []string
	for i, watched := range rule.Spec.Resources {
		groups := watched.APIGroups
		if len(groups) == 0 {
			groups = []string{""}
		}
		for j, resource := range watched.Resources {
			for _, group := range groups {
				if manifest.SensitiveResource(group, resource) {
					warnings = append(warnings, fmt.Sprintf("%s: %s are never captured, they would reach Git in the clear; the rule will be Stalled",
						resourcesPath(i).Child("resources").Index(j), resource))
				}
			}
		}
	}
	return warnings
}

func keepSpec(obj, old runtime.Object) {
	obj.(*v1alpha1.WatchRule).Spec = old.(*v1alpha1.WatchRule).Spec
}
