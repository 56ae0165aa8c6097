// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/kommit-dev/kommit/test/gitserver"
)

// Each commit is read with its author, its message, and the lines and files that it
// added and removed, as git shows them.
func TestCommitsAreReadFromAClone(t *testing.T) {
	r := gitserver.New(t, gitserver.Config{}).NewRepository(t, "chaos")
	file := func(lines string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n" + lines
	}
	history := []gitserver.ForeignCommit{
		{Author: "alice <alice@example.com>", Message: "One\n\nline", Files: map[string]string{"a/web.yaml": file("  x: x\n  w: w\n"), "a/db.yaml": file("  z: z\n")}},
		{Author: "bob <bob@example.com>", Message: "Two", Files: map[string]string{"a/web.yaml": file("  x: x\n  w: w\n  new: new\n")}},
		{Author: "alice <alice@example.com>", Message: "Three", Files: map[string]string{"a/db.yaml": ""}},
		{Author: "bob <bob@example.com>", Message: "Four"},
	}
	for _, c := range history {
		if _, err := r.Repository.Commit(t.Context(), branch, c); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readRepository(t.Context(), r.Repository, filepath.Join(t.TempDir(), "clone"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Commits {
		if len(got.Commits[i].Hash) != 40 {
			t.Errorf("commit %d has the hash %q", i, got.Commits[i].Hash)
		}
		got.Commits[i].Hash = ""
	}
	header := []string{"apiVersion: v1", "kind: ConfigMap", "metadata:", "name: web", "data:"}
	want := Repository{
		Files: map[string]map[string]string{"a/web.yaml": {"x": "x", "w": "w", "new": "new"}},
		Commits: []Commit{
			{Author: "alice", Message: "One\n\nline", Changes: 2, Added: map[string][]string{
				"a/web.yaml": append(header[:5:5], "x: x", "w: w"), "a/db.yaml": append(header[:5:5], "z: z"),
			}},
			{Author: "bob", Message: "Two", Changes: 1, Added: map[string][]string{"a/web.yaml": {"new: new"}}},
			{Author: "alice", Message: "Three", Changes: 1, Added: map[string][]string{}, Deleted: []string{"a/db.yaml"}},
			{Author: "bob", Message: "Four", Added: map[string][]string{}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
}
