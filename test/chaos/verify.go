// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

// Place says below which path the objects of a namespace are.
type Place struct{ Namespace, Path string }

// Evidence is all that is known at the end, when everything has settled.
type Evidence struct {
	Edits    []Edit
	Saves    []Save
	Requests []v1alpha1.CommitRequest
	// Cluster is the data of each object by the path of its file.
	Cluster    map[string]map[string]string
	Repository Repository
	Places     []Place
}

// path of an object's file (C13).
func (e Evidence) path(o Object) string {
	for _, place := range e.Places {
		if place.Namespace == o.Namespace {
			return place.file(o.Name)
		}
	}
	return ""
}

func (p Place) file(name string) string {
	return p.Path + "/" + p.Namespace + "/configmaps/" + name + ".yaml"
}

// Verify finds what contradicts DESIGN 8, nothing when all is as it should be.
func Verify(e Evidence) []Finding {
	v := &verifier{Evidence: e, at: map[string][]occurrence{}, deletions: map[string][]int{}}
	for i, commit := range e.Repository.Commits {
		for path, lines := range commit.Added {
			for _, line := range lines {
				if token, value, ok := strings.Cut(line, ": "); ok && token == value {
					v.at[token] = append(v.at[token], occurrence{commit: i, path: path})
				}
			}
		}
		for _, path := range commit.Deleted {
			v.deletions[path] = append(v.deletions[path], i)
		}
	}
	v.files()
	v.objects()
	v.requests()
	return v.findings
}

// The commits of a blind edit may be by nobody, because kommit does not know (W20), or
// by the committer, because a comparison with Git has found it (C9).
const (
	nobody    = window.UnresolvedName
	committer = "kommit"
)

// unnamed says whether an author is none of the users.
func unnamed(author string) bool { return author == nobody || author == committer }

// occurrence of a token: the number of the commit that added it, and to which file.
type occurrence struct {
	commit int
	path   string
}

type verifier struct {
	Evidence
	at        map[string][]occurrence // by token
	deletions map[string][]int        // commits that removed a path
	findings  []Finding
}

func (v *verifier) find(kind Kind, path, format string, args ...any) {
	v.findings = append(v.findings, Finding{Kind: kind, Path: path, Detail: fmt.Sprintf(format, args...)})
}

// files: Git holds what the cluster holds, nothing else.
func (v *verifier) files() {
	for _, path := range slices.Sorted(maps.Keys(v.Cluster)) {
		have, ok := v.Repository.Files[path]
		switch {
		case !ok:
			v.find(Different, path, "%s is not in Git", path)
		case !maps.Equal(have, v.Cluster[path]):
			v.find(Different, path, "%s has the keys %q in Git, %q in the cluster", path, slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(v.Cluster[path])))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(v.Repository.Files)) {
		if _, ok := v.Cluster[path]; !ok {
			v.find(Different, path, "%s is in Git, but not in the cluster", path)
		}
	}
}

// life is what was done to one object.
type life struct {
	edits    []Edit // that added a line; those whose order is known, in it, then the others
	deletion *Edit
}

func (v *verifier) objects() {
	lives := map[Object]*life{}
	for _, e := range v.Edits {
		if lives[e.Object] == nil {
			lives[e.Object] = &life{}
		}
		l := lives[e.Object]
		switch {
		case !e.Delete:
			l.edits = append(l.edits, e)
		case e.Outcome != Refused:
			l.deletion = &e
		}
	}
	expected := map[string]bool{} // paths that may be removed
	for _, object := range slices.SortedFunc(maps.Keys(lives), func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		l := lives[object]
		slices.SortStableFunc(l.edits, func(a, b Edit) int {
			return cmp.Or(cmp.Compare(min(a.ResourceVersion, 1), min(b.ResourceVersion, 1))*-1, cmp.Compare(a.ResourceVersion, b.ResourceVersion))
		})
		v.life(object, l)
		expected[v.path(object)] = l.deletion != nil
	}
	for _, path := range slices.Sorted(maps.Keys(v.deletions)) {
		if !expected[path] {
			v.find(Lost, path, "%s was removed from Git, but nobody deleted the object", path)
		}
	}
}

func (v *verifier) life(object Object, l *life) {
	path := v.path(object)
	traceless := v.traceless(l)
	inGit, last := false, -1
	for _, e := range l.edits {
		found := v.at[e.Token]
		switch {
		case len(found) > 1:
			v.find(Doubled, path, "edit %s is in %d commits: %s", e.Token, len(found), v.hashes(found))
		case len(found) == 1 && e.Outcome == Refused:
			v.find(Doubled, path, "edit %s was refused, but is in commit %s", e.Token, v.hashes(found))
		case len(found) == 0 && e.Outcome == Accepted && e.Blind && l.deletion != nil && l.deletion.Blind:
			// Nobody could see it, nor can now.
		case len(found) == 0 && e.Outcome == Accepted && !traceless[e.Token]:
			v.find(Lost, path, "edit %s of %s is in no commit", e.Token, object)
		}
		for _, at := range found {
			inGit = true
			if author := v.Repository.Commits[at.commit].Author; author != e.Author && !(e.Blind && unnamed(author)) {
				v.find(Misattributed, path, "edit %s is by %s, but its commit %s by %s", e.Token, e.Author, v.hashes(found), author)
			}
			if at.path != path {
				v.find(Different, path, "edit %s of %s is in the file %s", e.Token, object, at.path)
			}
		}
		if len(found) == 1 && e.ResourceVersion > 0 {
			if found[0].commit < last {
				v.find(Disordered, path, "edit %s is in an earlier commit than one before it: %s", e.Token, v.hashes(found))
			}
			last = max(last, found[0].commit)
		}
	}
	if l.deletion != nil {
		v.deletion(*l.deletion, path, inGit, last)
	}
}

// traceless are the edits that need not be in Git: the last ones before a deletion by
// the same author may have been in one window with it (W4). Another author's edit
// would have closed that (W3).
func (v *verifier) traceless(l *life) map[string]bool {
	may := map[string]bool{}
	if l.deletion == nil {
		return may
	}
	for _, e := range slices.Backward(l.edits) {
		if e.Outcome == Refused {
			continue
		}
		unordered := e.ResourceVersion == 0
		if e.Author != l.deletion.Author && !unordered || !unordered && len(v.at[e.Token]) > 0 {
			break
		}
		may[e.Token] = e.Author == l.deletion.Author
	}
	return may
}

func (v *verifier) deletion(d Edit, path string, inGit bool, last int) {
	found := v.deletions[path]
	switch {
	case len(found) > 1:
		v.find(Doubled, path, "deletion %s is in %d commits", d.Token, len(found))
	case len(found) == 0 && inGit:
		v.find(Lost, path, "deletion %s of %s is in no commit", d.Token, d.Object)
	}
	for _, at := range found {
		commit := v.Repository.Commits[at]
		if commit.Author != d.Author && !(d.Blind && unnamed(commit.Author)) {
			v.find(Misattributed, path, "deletion %s is by %s, but its commit %s by %s", d.Token, d.Author, commit.Hash, commit.Author)
		}
		if at <= last {
			v.find(Disordered, path, "deletion %s is in commit %s, not after the object's edits", d.Token, commit.Hash)
		}
	}
}

func (v *verifier) hashes(found []occurrence) string {
	hashes := make([]string, 0, len(found))
	for _, at := range found {
		hashes = append(hashes, v.Repository.Commits[at.commit].Hash)
	}
	return strings.Join(hashes, ", ")
}
