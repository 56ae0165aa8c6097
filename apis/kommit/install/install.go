// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install registers the kommit.dev API for a server.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// Install adds v1alpha1 to scheme, and the same Go types as the internal
// version: what is stored, validated and served is one type, so nothing is
// converted. Clients need v1alpha1.AddToScheme only. It panics when scheme holds
// other types under these names, which is a programming error.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: v1alpha1.GroupName, Version: runtime.APIVersionInternal},
		&v1alpha1.CommitRequest{}, &v1alpha1.CommitRequestList{},
		&v1alpha1.GitProvider{}, &v1alpha1.GitProviderList{},
		&v1alpha1.GitTarget{}, &v1alpha1.GitTargetList{},
		&v1alpha1.WatchRule{}, &v1alpha1.WatchRuleList{},
	)
	utilruntime.Must(scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
}
