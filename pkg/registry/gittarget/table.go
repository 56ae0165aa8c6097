// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gittarget

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

func newTable() registry.Table {
	column := func(name, description string, value func(*v1alpha1.GitTarget) string) registry.Column {
		return registry.Column{Name: name, Description: description, Value: func(obj runtime.Object) string {
			return value(obj.(*v1alpha1.GitTarget))
		}}
	}
	ready := registry.ReadyColumns(func(obj runtime.Object) []metav1.Condition {
		return obj.(*v1alpha1.GitTarget).Status.Conditions
	})
	return registry.Table{
		Columns: append(ready,
			column("Provider", "The GitProvider of the repository.", func(t *v1alpha1.GitTarget) string { return t.Spec.GitProviderRef.Name }),
			column("Branch", "The branch that is committed to.", func(t *v1alpha1.GitTarget) string { return t.Spec.Branch }),
			column("Path", "The directory below which the files go.", func(t *v1alpha1.GitTarget) string { return t.Spec.Path }),
			column("Commit", "The last commit pushed for this target.", func(t *v1alpha1.GitTarget) string { return registry.ShortHash(t.Status.Commit) }),
		),
		Wide: []registry.Column{
			column("Suspended", "Whether commits are stopped.", func(t *v1alpha1.GitTarget) string { return strconv.FormatBool(t.Spec.Suspend) }),
			column("Attribution", "How changes find their author.", func(t *v1alpha1.GitTarget) string { return string(t.Spec.Attribution) }),
		},
	}
}
