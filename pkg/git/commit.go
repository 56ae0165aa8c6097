// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
)

// Signature is who made a commit and when. It may hold anything: what a commit
// header cannot carry is left out when it is written (C10).
type Signature struct {
	Name  string
	Email string
	// When is written in UTC and whole seconds; a time before 1970 as 1970.
	When time.Time
}

// Commit is one commit to be made.
type Commit struct {
	Author    Signature
	Committer Signature
	// Edit returns the files that shall be different, having looked at the tree that
	// the commit is made on. It is called again for each tip that the branch moves to
	// (G3), and must be quick: the remote is waiting. Nil changes nothing.
	Edit func(ctx context.Context, t *Tree) ([]File, error)
	// Message returns the commit's message, given the paths that really changed.
	Message func(changed []string) string
	// AllowEmpty makes the commit even when no file changes.
	AllowEmpty bool
	// Recorded is what earlier calls of Push recorded for this commit and whose outcome
	// was never learnt (D2). When the branch holds one of them, Push reports it and makes
	// nothing.
	Recorded []Recorded
}

// Recorded is a commit that may have landed.
type Recorded struct {
	Hash string
	// Onto is where the branch was, as Built says. Without it the commit is only looked
	// for among the latest.
	Onto string
}

// Built is what became of a Commit.
type Built struct {
	// Hash is empty when there was nothing to commit, or Err is set.
	Hash string
	// Onto is where the branch was when the commit, or those before it of the same Push,
	// were made; all zeros for a branch that was not there, and empty for a commit that
	// an earlier push had brought.
	Onto string
	// Changed are the paths that really changed, in the order of the edit. It is nil
	// for a commit that an earlier push had brought.
	Changed []string
	// Err says why this commit cannot be made; the others of the batch are.
	Err error
}

// builder makes commits one on another.
type builder struct {
	src    *source
	base   *Tree // what the last commit was made on
	tree   *Tree // what the next commit is made on
	editor treeEditor
	sign   signFunc // nil for unsigned commits
	// unsigned is why a commit could not be signed.
	unsigned error
}

func newBuilder(t *Tree, sign signFunc) *builder {
	return &builder{src: t.src, base: t, tree: t, editor: treeEditor{src: t.src}, sign: sign}
}

// add makes one commit. The error is a failure to reach the remote or to sign,
// which is no fault of the commit.
func (b *builder) add(ctx context.Context, c Commit) (Built, error) {
	b.base = b.tree
	built, next, err := b.try(ctx, c)
	if failed := b.src.failure(); failed != nil {
		return Built{}, failed
	}
	if ctx.Err() != nil {
		return Built{}, ctx.Err()
	}
	if b.unsigned != nil {
		return Built{}, b.unsigned
	}
	if err != nil {
		return Built{Err: err}, nil //nolint:nilerr // a failed Edit is the outcome of this commit alone
	}
	if next != nil {
		b.tree = next
	}
	return built, nil
}

func (b *builder) try(ctx context.Context, c Commit) (Built, *Tree, error) {
	var files []File
	if c.Edit != nil {
		var err error
		if files, err = c.Edit(ctx, b.tree); err != nil {
			return Built{}, nil, err
		}
	}
	made := len(b.editor.objects)
	root, changed, err := b.editor.apply(ctx, b.tree, files)
	if err == nil && root == b.tree.root && !c.AllowEmpty {
		return Built{}, nil, nil
	}
	if err != nil {
		b.forget(made)
		return Built{}, nil, err
	}
	if root == emptyTree {
		b.editor.keep(object{kind: plumbing.TreeObject}, plumbing.ZeroHash)
	}
	message := ""
	if c.Message != nil {
		message = c.Message(changed)
	}
	o, err := b.encode(ctx, root, c, message)
	if err != nil {
		b.unsigned = err
		return Built{}, nil, err
	}
	h := b.editor.keep(o, plumbing.ZeroHash)
	return Built{Hash: h.String(), Changed: changed}, &Tree{src: b.src, commit: h, root: root}, nil
}

// forget drops the objects of a commit that failed half-way.
func (b *builder) forget(from int) {
	b.src.mu.Lock()
	defer b.src.mu.Unlock()
	for _, o := range b.editor.objects[from:] {
		delete(b.src.pending, o.hash)
	}
	b.editor.objects = b.editor.objects[:from]
}

// encode writes the commit object, signed if it has to be.
func (b *builder) encode(ctx context.Context, root plumbing.Hash, c Commit, message string) (object, error) {
	o := encodeCommit(root, b.tree.commit, c, message, "")
	if b.sign == nil {
		return o, nil
	}
	signature, err := b.sign(ctx, o.data, c.Committer.When)
	if err != nil {
		return object{}, err
	}
	return encodeCommit(root, b.tree.commit, c, message, signature), nil
}

// encodeCommit writes a commit object. The same input gives the same hash (G5).
// signature is armored, and of the commit without one.
func encodeCommit(tree, parent plumbing.Hash, c Commit, message, signature string) object {
	b := fmt.Appendf(nil, "tree %s\n", tree)
	if !parent.IsZero() {
		b = fmt.Appendf(b, "parent %s\n", parent)
	}
	b = fmt.Appendf(b, "author %s\ncommitter %s\n", c.Author.encode(), c.Committer.encode())
	if signature != "" {
		b = fmt.Appendf(b, "gpgsig %s\n", strings.ReplaceAll(strings.TrimSuffix(signature, "\n"), "\n", "\n "))
	}
	b = fmt.Appendf(b, "\n%s", safeMessage(message))
	return object{plumbing.CommitObject, b}
}

const (
	unknownName  = "unknown"
	unknownEmail = "unknown@kommit.invalid"
)

// encode writes the signature so that it cannot end its line or fake another
// header. Hosts refuse what has no name or no e-mail, so neither stays empty.
func (s Signature) encode() string {
	email := strings.Map(func(r rune) rune {
		if unsafeInHeader(r) || unicode.IsSpace(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s.Email, ""))
	name := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s.Name, "\uFFFD"), func(r rune) bool {
		return unsafeInHeader(r) || unicode.IsSpace(r)
	}), " ")
	if name == "" {
		name, _, _ = strings.Cut(email, "@")
	}
	if name == "" {
		name = unknownName
	}
	if email == "" {
		email = unknownEmail
	}
	return fmt.Sprintf("%s <%s> %d +0000", name, email, max(0, s.When.Unix()))
}

func unsafeInHeader(r rune) bool {
	return r == '<' || r == '>' || unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
}

// safeMessage leaves a message as it is but for what a commit cannot carry:
// invalid UTF-8 and control characters; line breaks become Git's own, and the
// last line gets one.
func safeMessage(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case r != '\n' && r != '\t' && unicode.IsControl(r):
			return -1
		}
		return r
	}, s)
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}
