// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package watchrule

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// admission decides whether a valid rule may be stored (DESIGN 4.5).
type admission struct {
	authorizer authorizer.UnconditionalAuthorizer
}

// permit refuses a rule that names what its writer may not read: the server
// captures it with rights of its own. It stops at the first that is missing, so
// that a long rule costs those who may nothing little.
//
// What the stored rule names already is not asked for again, unless it would go
// to another target.
func (a admission) permit(ctx context.Context, obj, old runtime.Object) error {
	rule := obj.(*v1alpha1.WatchRule)
	known := map[selection]bool{}
	if stored, ok := old.(*v1alpha1.WatchRule); ok && stored.Spec.GitTargetRef == rule.Spec.GitTargetRef {
		for _, s := range selections(stored.Spec.Resources) {
			known[s] = true
		}
	}
	for _, s := range selections(rule.Spec.Resources) {
		if s.within(known) {
			continue
		}
		err := registry.Permission{
			For:   fmt.Sprintf("capture %s", s.resource),
			Verbs: []string{"get", "list", "watch"},
			On: authorizer.AttributesRecord{
				APIGroup: s.group, APIVersion: "*", Resource: s.resource,
				Namespace: rule.Namespace, Name: s.name,
			},
		}.Check(ctx, a.authorizer)
		if err != nil {
			return err
		}
		s.labels = everyLabel() // labels were no part of the question
		known[s] = true
	}
	return nil
}

// selection is one thing that a rule names: the objects of a resource with this
// name (empty: every name) and these labels.
type selection struct{ group, resource, name, labels string }

// within says whether one of known selects all that s does.
func (s selection) within(known map[selection]bool) bool {
	for _, name := range []string{s.name, ""} {
		for _, labels := range []string{s.labels, everyLabel()} {
			if known[selection{s.group, s.resource, name, labels}] {
				return true
			}
		}
	}
	return false
}

func selections(resources []v1alpha1.WatchedResources) []selection {
	var all []selection
	for _, watched := range resources {
		labels := metav1.FormatLabelSelector(watched.LabelSelector)
		for _, group := range orEmpty(watched.APIGroups) {
			for _, resource := range watched.Resources {
				for _, name := range orEmpty(watched.Names) {
					all = append(all, selection{group, resource, name, labels})
				}
			}
		}
	}
	return all
}

// orEmpty is list, or "" alone: the core group, or every name.
func orEmpty(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

func everyLabel() string { return metav1.FormatLabelSelector(nil) }
