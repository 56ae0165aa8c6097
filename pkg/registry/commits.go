// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// CommitTable is how kubectl shows commits: those of a branch, and the one of a
// request.
func CommitTable() Table {
	column := func(name, description string, value func(*v1alpha1.Commit) string) Column {
		return Column{Name: name, Description: description, Value: func(obj runtime.Object) string {
			return value(obj.(*v1alpha1.Commit))
		}}
	}
	return Table{
		Columns: []Column{
			column("Author", "Who made the changes.", func(c *v1alpha1.Commit) string { return c.Author.Name }),
			column("Subject", "The first line of the message.", func(c *v1alpha1.Commit) string { return Subject(c.Message) }),
			column("Files", "The number of files changed.", func(c *v1alpha1.Commit) string { return strconv.Itoa(len(c.Files)) }),
			column("Request", "The CommitRequest that asked for it.", func(c *v1alpha1.Commit) string {
				if c.CommitRequestRef == nil {
					return ""
				}
				return c.CommitRequestRef.Name
			}),
		},
	}
}

// Subject is the first line of a message that is not blank.
func Subject(message string) string {
	subject, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	return subject
}
