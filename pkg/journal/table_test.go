// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kommit-dev/kommit/pkg/journal"
)

func TestTableKeepsGroupsApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db := open(t, path)
	table := journal.NewTable(db, "indexes")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(group string, want map[string]string) {
		t.Helper()
		got, err := table.Load(group)
		must(err)
		text := map[string]string{}
		for key, value := range got {
			text[key] = string(value)
		}
		if !maps.Equal(text, want) {
			t.Errorf("%s holds %v, want %v (keys %v)", group, text, want, slices.Collect(maps.Keys(got)))
		}
	}
	want("one", map[string]string{})
	must(table.Drop("one"))
	must(table.Change("one", map[string][]byte{"a": []byte("1"), "b": []byte("2"), "c": {}}, nil))
	must(table.Change("two", map[string][]byte{"a": []byte("3")}, []string{"never there"}))
	must(table.Change("one", map[string][]byte{"a": []byte("4")}, []string{"b"}))
	want("one", map[string]string{"a": "4", "c": ""})

	must(db.Close())
	table = journal.NewTable(open(t, path), "indexes")
	want("one", map[string]string{"a": "4", "c": ""})
	must(table.Drop("one"))
	want("one", map[string]string{})
	want("two", map[string]string{"a": "3"})
}
