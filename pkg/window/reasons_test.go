// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// TestEveryReasonIsReported: each reason that the API has for CommitRequests is on
// one of the conditions that Status makes, and no other is. A reason that is added
// there needs a row here.
func TestEveryReasonIsReported(t *testing.T) {
	reported := map[string]bool{}
	for _, row := range table {
		for _, caughtUp := range caughtUpTable {
			p := caughtUp.progress
			p.Reason = row.reason
			for _, c := range Status(v1alpha1.CommitRequestStatus{}, 1, p, noon).Conditions {
				reported[c.Reason] = true
			}
		}
	}
	declared := commitRequestReasons(t)
	for name, reason := range declared {
		if !reported[reason] {
			t.Errorf("%s (%s) is on no condition: it needs a row in rowOf, and in the table of this test", reason, name)
		}
		delete(reported, reason)
	}
	if len(reported) > 0 {
		t.Errorf("reported, but not declared: %v", reported)
	}
}

// commitRequestReasons are the constants that stand together with
// ReasonWaitingForWindow.
func commitRequestReasons(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../apis/kommit/v1alpha1/conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range file.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		reasons := map[string]string{}
		for _, spec := range group.Specs {
			constant, ok := spec.(*ast.ValueSpec)
			if !ok || len(constant.Values) != 1 {
				continue
			}
			reason, err := strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			reasons[constant.Names[0].Name] = reason
		}
		if reasons["ReasonWaitingForWindow"] != "" {
			return reasons
		}
	}
	t.Fatal("there is no ReasonWaitingForWindow")
	return nil
}

// TestStatusIsTheDesign: the table of DESIGN 4.4, as it is written there, is what
// Status does; all of it, and nothing else.
func TestStatusIsTheDesign(t *testing.T) {
	columns := []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionPushed}
	written := designTable(t, columns)
	for reason, expected := range written {
		status := Status(v1alpha1.CommitRequestStatus{}, 1, Progress{Reason: reason}, noon)
		var found []string
		for _, column := range columns {
			condition := "–"
			if c := apimeta.FindStatusCondition(status.Conditions, column); c != nil {
				condition = string(c.Status)
			}
			found = append(found, condition)
		}
		if !slices.Equal(expected, found) {
			t.Errorf("%s: %v are %v, in the design %v", reason, columns, found, expected)
		}
		if attributed := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAttributed); attributed == nil ||
			attributed.Status != metav1.ConditionTrue || attributed.Reason != v1alpha1.ReasonAuthenticated {
			t.Errorf("%s: Attributed is %+v", reason, attributed)
		}
	}
	for _, row := range table {
		if written[row.reason] == nil {
			t.Errorf("the design does not know %s", row.reason)
		}
	}
}

// designTable are the cells of the design's table in these columns, by reason.
func designTable(t *testing.T, columns []string) map[string][]string {
	t.Helper()
	design, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	head := "| moment | " + strings.Join(columns, " | ") + " | reason on Ready |\n"
	_, body, found := strings.Cut(string(design), head)
	if !found {
		t.Fatalf("the design has no table %s", head)
	}
	quoted := regexp.MustCompile("`([A-Za-z]+)`")
	rows := map[string][]string{}
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != len(columns)+2 {
			t.Fatalf("not a row of the table: %s", line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		for _, reason := range quoted.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			if rows[reason[1]] != nil {
				t.Errorf("the design has two rows for %s", reason[1])
			}
			rows[reason[1]] = cells[1 : len(cells)-1]
		}
	}
	return rows
}
