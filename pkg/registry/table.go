// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// Table is how kubectl get shows a kind: Name first, Columns between, Age last,
// and Wide after it with -o wide.
type Table struct {
	Columns []Column
	Wide    []Column
}

// Column is one column of a Table.
type Column struct {
	Name, Description string
	// Value is what the column holds for one object.
	Value func(obj runtime.Object) string
}

var _ rest.TableConvertor = Table{}

// ConvertToTable implements rest.TableConvertor.
func (t Table) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if object, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = object.GetResourceVersion()
	}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		table.ColumnDefinitions = t.definitions()
	}
	rows, err := metatable.MetaToTableRow(obj, func(obj runtime.Object, _ metav1.Object, name, age string) ([]any, error) {
		cells := []any{name}
		for _, c := range t.Columns {
			cells = append(cells, c.Value(obj))
		}
		cells = append(cells, age)
		for _, c := range t.Wide {
			cells = append(cells, c.Value(obj))
		}
		return cells, nil
	})
	table.Rows = rows
	return table, err
}

func (t Table) definitions() []metav1.TableColumnDefinition {
	described := metav1.ObjectMeta{}.SwaggerDoc()
	definitions := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: described["name"]},
	}
	for _, c := range t.Columns {
		definitions = append(definitions, metav1.TableColumnDefinition{Name: c.Name, Type: "string", Description: c.Description})
	}
	definitions = append(definitions,
		metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: described["creationTimestamp"]})
	for _, c := range t.Wide {
		definitions = append(definitions, metav1.TableColumnDefinition{Name: c.Name, Type: "string", Description: c.Description, Priority: 1})
	}
	return definitions
}

// ReadyColumns are the two columns that every kind starts with.
func ReadyColumns(conditions func(runtime.Object) []metav1.Condition) []Column {
	ready := func(obj runtime.Object) *metav1.Condition {
		return meta.FindStatusCondition(conditions(obj), v1alpha1.ConditionReady)
	}
	return []Column{
		{"Ready", "Whether the object has reached what its spec asks for.", func(obj runtime.Object) string {
			if c := ready(obj); c != nil {
				return string(c.Status)
			}
			return string(metav1.ConditionUnknown)
		}},
		{"Reason", "Why Ready is what it is.", func(obj runtime.Object) string {
			if c := ready(obj); c != nil {
				return c.Reason
			}
			return ""
		}},
	}
}

// ShortHash is a commit hash as people write it: its first 12 digits.
func ShortHash(hash string) string {
	return hash[:min(len(hash), 12)]
}
