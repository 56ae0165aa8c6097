// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
)

// podStrategy lets everything through.
type podStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func (podStrategy) NamespaceScoped() bool                                            { return true }
func (podStrategy) PrepareForCreate(context.Context, runtime.Object)                 {}
func (podStrategy) Validate(context.Context, runtime.Object) field.ErrorList         { return nil }
func (podStrategy) WarningsOnCreate(context.Context, runtime.Object) []string        { return nil }
func (podStrategy) Canonicalize(runtime.Object)                                      {}
func (podStrategy) AllowCreateOnUpdate(context.Context) bool                         { return false }
func (podStrategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
func (podStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (podStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (podStrategy) AllowUnconditionalUpdate(context.Context) bool { return true }
