// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitprovider

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// NewREST returns the storage of gitproviders and gitproviders/status. by
// answers for the permission to use a Secret. With allowInsecureHTTP, http:// URLs
// are accepted.
func NewREST(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, by authorizer.UnconditionalAuthorizer, allowInsecureHTTP bool) (*registry.REST, *registry.StatusREST, error) {
	s := newStrategy(scheme, allowInsecureHTTP)
	return registry.NewREST(registry.Kind{
		New:            func() runtime.Object { return &v1alpha1.GitProvider{} },
		NewList:        func() runtime.Object { return &v1alpha1.GitProviderList{} },
		Plural:         "gitproviders",
		Singular:       "gitprovider",
		ShortNames:     []string{"gp"},
		Strategy:       s,
		StatusStrategy: registry.StatusStrategy{Strategy: s.Strategy, KeepSpec: keepSpec},
		Table:          newTable(),
		Permit:         admission{by}.permit,
	}, getter)
}
