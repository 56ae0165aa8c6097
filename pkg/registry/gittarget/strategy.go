// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gittarget is the registry of GitTargets (DESIGN 4.2).
package gittarget

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// The bounds of spec.window.
const (
	shortest    = time.Second
	maxDuration = 24 * time.Hour
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
	target := obj.(*v1alpha1.GitTarget)
	target.Status = v1alpha1.GitTargetStatus{}
	target.Generation = 1
}

// PrepareForUpdate keeps the status and counts a changed spec.
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	target, stored := obj.(*v1alpha1.GitTarget), old.(*v1alpha1.GitTarget)
	target.Status = stored.Status
	target.Generation = registry.Generation(stored, target.Spec, stored.Spec)
}

// Validate checks a new target.
func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	target := obj.(*v1alpha1.GitTarget)
	errs := s.ValidateNew(ctx, target)
	spec := field.NewPath("spec")
	if target.Spec.Branch != "" { // else its tag says so
		errs = append(errs, registry.GitError(spec.Child("branch"), git.CheckBranch(target.Spec.Branch))...)
	}
	if target.Spec.Path != "" {
		errs = append(errs, registry.GitError(spec.Child("path"), git.CheckPath(target.Spec.Path))...)
	}
	return append(errs, validateWindow(target.Spec.Window, spec.Child("window"))...)
}

// ValidateUpdate checks a changed target. Where the files go cannot change: the
// files that are there already would be orphans.
func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	target, stored := obj.(*v1alpha1.GitTarget), old.(*v1alpha1.GitTarget)
	const cure = "create another GitTarget for the new place, and delete this one"
	spec := field.NewPath("spec")
	errs := s.ValidateChanged(ctx, obj, old)
	errs = append(errs, registry.Immutable(spec.Child("gitProviderRef", "name"), target.Spec.GitProviderRef.Name, stored.Spec.GitProviderRef.Name, cure)...)
	errs = append(errs, registry.Immutable(spec.Child("branch"), target.Spec.Branch, stored.Spec.Branch, cure)...)
	errs = append(errs, registry.Immutable(spec.Child("path"), target.Spec.Path, stored.Spec.Path, cure)...)
	return append(errs, validateWindow(target.Spec.Window, spec.Child("window"))...)
}

func validateWindow(window v1alpha1.WindowOptions, path *field.Path) field.ErrorList {
	errs := registry.ValidateDuration(window.MaxDuration, shortest, maxDuration, path.Child("maxDuration"))
	return append(errs, registry.ValidateIdleTimeout(window.IdleTimeout, window.MaxDuration, shortest, path.Child("idleTimeout"))...)
}

func keepSpec(obj, old runtime.Object) {
	obj.(*v1alpha1.GitTarget).Spec = old.(*v1alpha1.GitTarget).Spec
}
