// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry holds what the registries of all kinds have in common. Each
// kind has a package of its own below it: strategy.go says what is accepted,
// table.go how kubectl get shows it, storage.go what is served.
package registry

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// Strategy is the part of a strategy that is the same for every kind; a kind
// embeds it and adds PrepareForCreate, PrepareForUpdate, Validate and
// ValidateUpdate. It is also the one place that knows of declarative validation.
type Strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	scheme *runtime.Scheme
}

// NewStrategy returns the common part for the kinds registered in scheme.
func NewStrategy(scheme *runtime.Scheme) Strategy {
	return Strategy{ObjectTyper: scheme, NameGenerator: names.SimpleNameGenerator, scheme: scheme}
}

// NamespaceScoped is true for every kind of kommit.dev.
func (Strategy) NamespaceScoped() bool { return true }

// AllowCreateOnUpdate is false: PUT of an unknown name is 404, as for most
// built-in kinds. Server-side apply creates all the same.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is true, as for the built-in kinds.
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return true }

// Canonicalize changes nothing.
func (Strategy) Canonicalize(runtime.Object) {}

// WarningsOnCreate has nothing to say.
func (Strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// WarningsOnUpdate has nothing to say.
func (Strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// GetResetFields keeps server-side apply from owning what the main resource
// does not write.
func (Strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return ResetFields(fieldpath.MakePathOrDie("status"))
}

// ValidateNew checks the object's name and the validation tags of its type.
func (s Strategy) ValidateNew(ctx context.Context, obj interface {
	runtime.Object
	metav1.Object
}) field.ErrorList {
	var errs field.ErrorList
	if obj.GetName() != "" { // else the generic check of metadata says so
		for _, message := range apivalidation.NameIsDNSSubdomain(obj.GetName(), false) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), obj.GetName(), message))
		}
	}
	return append(errs, s.scheme.Validate(ctx, nil, obj)...)
}

// ValidateChanged checks the validation tags of what differs between obj and old.
func (s Strategy) ValidateChanged(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.scheme.ValidateUpdate(ctx, nil, obj, old)
}

// StatusStrategy is how the status subresource of every kind is updated: status
// changes and nothing else does.
type StatusStrategy struct {
	Strategy
	// KeepSpec sets obj's spec to old's.
	KeepSpec func(obj, old runtime.Object)
}

var (
	_ rest.RESTUpdateStrategy  = StatusStrategy{}
	_ rest.ResetFieldsStrategy = StatusStrategy{}
)

// PrepareForUpdate takes back every change outside of status.
func (s StatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.KeepSpec(obj, old)
	updated, isObject := obj.(metav1.Object)
	stored, wasObject := old.(metav1.Object)
	if isObject && wasObject {
		metav1.ResetObjectMetaForStatus(updated, stored)
	}
}

// ValidateUpdate accepts what it is given: status is written by the server.
func (StatusStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

// GetResetFields is the opposite of the main resource's.
func (StatusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return ResetFields(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata"))
}

// ResetFields says that the fields at paths are not a writer's to own.
func ResetFields(paths ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String()): fieldpath.NewSet(paths...),
	}
}

// Generation returns the generation that obj has after an update: one more when
// its spec changed, so that status.observedGeneration means something.
func Generation(old metav1.Object, spec, oldSpec any) int64 {
	if apiequality.Semantic.DeepEqual(spec, oldSpec) {
		return old.GetGeneration()
	}
	return old.GetGeneration() + 1
}
