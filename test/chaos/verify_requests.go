// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

// requests: each has one end, and it is true.
func (v *verifier) requests() {
	saves := map[Object]Save{}
	for _, s := range v.Saves {
		saves[s.Object] = s
	}
	byHash, byMessage := map[string]int{}, map[string][]string{}
	for i, c := range v.Repository.Commits {
		byHash[c.Hash] = i
		byMessage[c.Message] = append(byMessage[c.Message], c.Hash)
	}
	owner := map[string]Object{} // of a commit
	exists := map[Object]bool{}
	for _, r := range v.Requests {
		name := Object{Namespace: r.Namespace, Name: r.Name}
		exists[name] = true
		save, asked := saves[name]
		if !asked {
			v.find(Resolution, "", "nobody asked for request %s", name)
			continue
		}
		if !window.Finished(r.Status) {
			v.find(Unresolved, "", "request %s is %s", name, reason(r))
			continue
		}
		if hashes := byMessage[save.Message]; save.Message != "" && (len(hashes) > 1 || len(hashes) == 1 && hashes[0] != r.Status.Commit) {
			v.find(Resolution, "", "request %s says %q, but its message is on %q", name, r.Status.Commit, hashes)
		}
		at, there := byHash[r.Status.Commit]
		switch reason(r) {
		case v1alpha1.ReasonCommitted, v1alpha1.ReasonEmptyCommit:
			if !there {
				v.find(Resolution, "", "request %s is %s as %q, which is not on the branch", name, reason(r), r.Status.Commit)
				continue
			}
			if other, taken := owner[r.Status.Commit]; taken {
				v.find(Resolution, "", "requests %s and %s share the commit %s", name, other, r.Status.Commit)
			}
			owner[r.Status.Commit] = name
			v.committed(save, r, at)
		case v1alpha1.ReasonNoOpenWindow, v1alpha1.ReasonWindowMismatch, v1alpha1.ReasonAlreadyPresent, v1alpha1.ReasonSaveInProgress:
			if r.Status.Commit != "" {
				v.find(Resolution, "", "request %s is %s, but has commit %s", name, reason(r), r.Status.Commit)
			}
		default:
			v.find(Resolution, "", "request %s ended as %q, which nothing here gives cause to", name, reason(r))
		}
	}
	for _, s := range v.Saves {
		if exists[s.Object] {
			continue
		}
		if s.Acknowledged {
			v.find(Lost, "", "request %s was acknowledged, and does not exist", s.Object)
		}
		if s.Message != "" && len(byMessage[s.Message]) > 0 {
			v.find(Resolution, "", "request %s does not exist, but its message is on %q", s.Object, byMessage[s.Message])
		}
	}
}

// committed: the commit is the request's own, and holds what its author did before it
// if it says so (DESIGN 5.5).
func (v *verifier) committed(save Save, r v1alpha1.CommitRequest, at int) {
	commit := v.Repository.Commits[at]
	if commit.Author != save.Author {
		v.find(Misattributed, "", "request %s is by %s, its commit %s by %s", save.Object, save.Author, commit.Hash, commit.Author)
	}
	if save.Message != "" && commit.Message != save.Message {
		v.find(Resolution, "", "request %s has the message %q, its commit %s %q", save.Object, save.Message, commit.Hash, commit.Message)
	}
	if empty := reason(r) == v1alpha1.ReasonEmptyCommit; empty != (commit.Changes == 0) {
		v.find(Resolution, "", "request %s is %s, its commit %s changes %d files", save.Object, reason(r), commit.Hash, commit.Changes)
	}
	if !apimeta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionCaughtUp) {
		return
	}
	for _, e := range v.Edits {
		if e.Author != save.Author || e.Object.Namespace != save.Namespace || e.Sequence > save.Sequence || e.Delete {
			continue
		}
		for _, found := range v.at[e.Token] {
			unknown := e.Blind && unnamed(v.Repository.Commits[found.commit].Author)
			if found.commit > at && !unknown {
				v.find(Disordered, v.path(e.Object), "edit %s came before request %s, which is caught up, but is in a later commit: %s", e.Token, save.Object, v.hashes(v.at[e.Token]))
			}
		}
	}
}
