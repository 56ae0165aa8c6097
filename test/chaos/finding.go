// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import "fmt"

// Kind of what is wrong.
type Kind string

// What can be wrong with an edit, with a request, or with the rest.
const (
	// Lost: an accepted edit, or an acknowledged request, is nowhere.
	Lost Kind = "lost"
	// Doubled: an edit is in more than one commit, or one that was refused is in one.
	Doubled Kind = "doubled"
	// Misattributed: an edit is in another author's commit.
	Misattributed Kind = "misattributed"
	// Disordered: the edits of an object are not in the order of their commits, or not
	// before the save that says that it holds them.
	Disordered Kind = "disordered"
	// Unresolved: a request has not come to an end.
	Unresolved Kind = "unresolved"
	// Resolution: a request's end is not true, or not the only one.
	Resolution Kind = "resolution"
	// Different: the files are not what the cluster holds.
	Different Kind = "different"
	// Damaged: Git or the storage file is not sound.
	Damaged Kind = "damaged"
	// Unproven: kube-apiserver dropped audit events, so authors could not be known.
	Unproven Kind = "unproven"
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind   Kind
	Detail string
	// Path of the file concerned, if it is about one.
	Path string
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s", f.Kind, f.Detail) }
