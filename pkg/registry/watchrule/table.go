// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package watchrule

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

func newTable() registry.Table {
	column := func(name, description string, value func(*v1alpha1.WatchRule) string) registry.Column {
		return registry.Column{Name: name, Description: description, Value: func(obj runtime.Object) string {
			return value(obj.(*v1alpha1.WatchRule))
		}}
	}
	ready := registry.ReadyColumns(func(obj runtime.Object) []metav1.Condition {
		return obj.(*v1alpha1.WatchRule).Status.Conditions
	})
	return registry.Table{
		Columns: append(ready,
			column("Target", "The GitTarget that is captured into.", func(r *v1alpha1.WatchRule) string { return r.Spec.GitTargetRef.Name }),
			column("Resources", "What is captured.", func(r *v1alpha1.WatchRule) string {
				var names []string
				for _, watched := range r.Spec.Resources {
					for _, resource := range watched.Resources {
						if !slices.Contains(names, resource) {
							names = append(names, resource)
						}
					}
				}
				return strings.Join(names, ",")
			}),
		),
	}
}
