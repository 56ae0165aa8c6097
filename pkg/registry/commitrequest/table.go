// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitrequest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

func newTable() registry.Table {
	column := func(name, description string, value func(*v1alpha1.CommitRequest) string) registry.Column {
		return registry.Column{Name: name, Description: description, Value: func(obj runtime.Object) string {
			return value(obj.(*v1alpha1.CommitRequest))
		}}
	}
	ready := registry.ReadyColumns(func(obj runtime.Object) []metav1.Condition {
		return obj.(*v1alpha1.CommitRequest).Status.Conditions
	})
	return registry.Table{
		Columns: append(ready,
			column("Target", "The GitTarget whose edits are saved.", func(r *v1alpha1.CommitRequest) string { return r.Spec.GitTargetRef.Name }),
			column("Author", "The user who asked for the save.", func(r *v1alpha1.CommitRequest) string { return r.Spec.RequestedBy.Username }),
			column("Commit", "The commit on the remote.", func(r *v1alpha1.CommitRequest) string { return registry.ShortHash(r.Status.Commit) }),
		),
		Wide: []registry.Column{
			column("Branch", "The branch that the commit is on.", func(r *v1alpha1.CommitRequest) string { return r.Status.Branch }),
			column("Window", "The window that the request is attached to.", func(r *v1alpha1.CommitRequest) string {
				if r.Status.WindowRef == nil {
					return ""
				}
				return r.Status.WindowRef.Name
			}),
			column("Message", "The first line of the message.", func(r *v1alpha1.CommitRequest) string {
				return registry.Subject(r.Spec.Message)
			}),
		},
	}
}
