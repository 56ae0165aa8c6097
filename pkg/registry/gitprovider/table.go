// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitprovider

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

func newTable() registry.Table {
	column := func(name, description string, value func(*v1alpha1.GitProvider) string) registry.Column {
		return registry.Column{Name: name, Description: description, Value: func(obj runtime.Object) string {
			return value(obj.(*v1alpha1.GitProvider))
		}}
	}
	ready := registry.ReadyColumns(func(obj runtime.Object) []metav1.Condition {
		return obj.(*v1alpha1.GitProvider).Status.Conditions
	})
	return registry.Table{
		Columns: append(ready,
			column("URL", "The repository.", func(p *v1alpha1.GitProvider) string { return p.Spec.URL }),
		),
		Wide: []registry.Column{
			column("Secret", "The Secret with the credentials.", func(p *v1alpha1.GitProvider) string {
				if p.Spec.SecretRef == nil {
					return "<none>"
				}
				return p.Spec.SecretRef.Name
			}),
			column("Committer", "Who is recorded as committer.", func(p *v1alpha1.GitProvider) string {
				return p.Spec.Commit.Committer.Name + " <" + p.Spec.Commit.Committer.Email + ">"
			}),
		},
	}
}
