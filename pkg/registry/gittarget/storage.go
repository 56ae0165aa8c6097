// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gittarget

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// NewREST returns the storage of gittargets and gittargets/status.
func NewREST(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*registry.REST, *registry.StatusREST, error) {
	s := newStrategy(scheme)
	return registry.NewREST(registry.Kind{
		New:            func() runtime.Object { return &v1alpha1.GitTarget{} },
		NewList:        func() runtime.Object { return &v1alpha1.GitTargetList{} },
		Plural:         "gittargets",
		Singular:       "gittarget",
		ShortNames:     []string{"gt"},
		Strategy:       s,
		StatusStrategy: registry.StatusStrategy{Strategy: s.Strategy, KeepSpec: keepSpec},
		Table:          newTable(),
	}, getter)
}
