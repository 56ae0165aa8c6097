// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package watchrule

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// NewREST returns the storage of watchrules and watchrules/status. by
// answers for the permission to read what a rule names.
func NewREST(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, by authorizer.UnconditionalAuthorizer) (*registry.REST, *registry.StatusREST, error) {
	s := newStrategy(scheme)
	return registry.NewREST(registry.Kind{
		New:            func() runtime.Object { return &v1alpha1.WatchRule{} },
		NewList:        func() runtime.Object { return &v1alpha1.WatchRuleList{} },
		Plural:         "watchrules",
		Singular:       "watchrule",
		ShortNames:     []string{"wr"},
		Strategy:       s,
		StatusStrategy: registry.StatusStrategy{Strategy: s.Strategy, KeepSpec: keepSpec},
		Table:          newTable(),
		Permit:         admission{by}.permit,
	}, getter)
}
