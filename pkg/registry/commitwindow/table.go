// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitwindow

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// maxShownChanges is how many changes a row of the table names.
const maxShownChanges = 3

func newTable() registry.Table {
	column := func(name, description string, value func(*v1alpha1.CommitWindowStatus) string) registry.Column {
		return registry.Column{Name: name, Description: description, Value: func(obj runtime.Object) string {
			return value(&obj.(*v1alpha1.CommitWindow).Status)
		}}
	}
	return registry.Table{
		Columns: []registry.Column{
			column("Target", "The GitTarget that the window commits to.", func(s *v1alpha1.CommitWindowStatus) string { return s.GitTargetRef.Name }),
			column("Author", "Whose changes it collects.", author),
			column("Changes", "The number of objects changed.", func(s *v1alpha1.CommitWindowStatus) string { return strconv.Itoa(int(s.ChangeCount)) }),
			column("Closes", "How long until it closes by itself, if nothing else happens.", closes),
			column("Request", "The CommitRequest that holds it.", func(s *v1alpha1.CommitWindowStatus) string {
				if s.CommitRequestRef == nil {
					return ""
				}
				return s.CommitRequestRef.Name
			}),
		},
		Wide: []registry.Column{
			column("Changed", "The changes, the first ones by name.", changed),
		},
	}
}

func author(s *v1alpha1.CommitWindowStatus) string {
	switch s.AuthorKind {
	case v1alpha1.AuthorUnresolved:
		return "<unresolved>"
	case v1alpha1.AuthorShared:
		return "<shared>"
	case v1alpha1.AuthorUser:
	}
	return s.Author
}

func closes(s *v1alpha1.CommitWindowStatus) string {
	if s.CloseTime == nil {
		return ""
	}
	return duration.HumanDuration(max(0, time.Until(s.CloseTime.Time)))
}

func changed(s *v1alpha1.CommitWindowStatus) string {
	shown := make([]string, 0, maxShownChanges+1)
	for i, c := range s.Changes {
		if i == maxShownChanges {
			shown = append(shown, "+"+strconv.Itoa(len(s.Changes)-i))
			break
		}
		resource := c.Resource
		if c.Group != "" {
			resource += "." + c.Group
		}
		shown = append(shown, c.Operation+" "+resource+"/"+c.Name)
	}
	return strings.Join(shown, ", ")
}
