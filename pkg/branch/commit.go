// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	pathpkg "path"

	"github.com/kommit-dev/kommit/pkg/attribution"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/manifest"
	"github.com/kommit-dev/kommit/pkg/window"
)

// commit says what Git has to do for an entry: nothing once it is settled or only
// sought. It is a pure function of the write, the destination and the tree it is built
// on (G3, G5).
func (e *entry) commit() git.Commit {
	w, d := e.write, e.destination
	c := git.Commit{
		Author:     author(w, d),
		Committer:  git.Signature{Name: d.committer.Name, Email: d.committer.Email, When: w.Closed},
		Message:    func(changed []string) string { return window.Message(w, changed) },
		AllowEmpty: w.AllowEmpty() && !e.settled && !e.sought,
		Edit: func(ctx context.Context, tree *git.Tree) (files []git.File, err error) {
			if e.settled || e.sought {
				return nil, nil
			}
			files, e.unsaved, err = edit(ctx, tree, d.layout, w.Changes, e.skip)
			if err == nil && len(files) == 0 {
				err = errors.Join(e.unsaved...)
			}
			return files, err
		},
	}
	for _, attempt := range e.attempts {
		c.Recorded = append(c.Recorded, git.Recorded{Hash: attempt.Hash, Onto: attempt.Onto})
	}
	return c
}

// author is whom the write says to commit as; nobody is the committer (C10, W20).
func author(w window.Write, d destination) git.Signature {
	switch {
	case w.Author.Unresolved:
		_, email := attribution.Identity("unknown", d.mailDomain)
		return git.Signature{Name: window.UnresolvedName, Email: email, When: w.Closed}
	case w.Author == window.Author{}:
		return git.Signature{Name: d.committer.Name, Email: d.committer.Email, When: w.Closed}
	}
	name, email := attribution.Identity(w.Author.Username, d.mailDomain)
	return git.Signature{Name: name, Email: email, When: w.Closed}
}

// edit turns "set this object, remove that one" into the files that differ on
// the given tree. unsaved says which objects cannot be written, and why, those at
// and below the paths of skip among them; the others are not kept back for them.
func edit(ctx context.Context, tree *git.Tree, l *layout, changes []window.Change, skip map[string]error) (files []git.File, unsaved []error, err error) {
	objects := make([]manifest.Object, len(changes))
	for i, c := range changes {
		objects[i] = objectOf(c)
	}
	places, err := l.places(ctx, tree, objects)
	if err != nil {
		return nil, nil, err
	}
	var paths []string
	for _, at := range places {
		if at.hash != "" {
			paths = append(paths, at.path)
		}
	}
	if err := tree.Prefetch(ctx, paths...); err != nil {
		return nil, nil, err
	}
	// One file may hold several of the objects.
	edited := map[string]*git.File{}
	for i, c := range changes {
		at := places[i].path
		err := places[i].refused
		if err == nil {
			err = inTheWay(at, skip)
		}
		if err != nil {
			unsaved = append(unsaved, fmt.Errorf("%s: %w", at, err))
			continue
		}
		file, err := editOne(ctx, tree, at, objects[i], c, edited[at])
		var (
			refused    *manifest.RefusedError
			notRegular *git.NotRegularError
		)
		switch {
		case errors.As(err, &refused), errors.As(err, &notRegular):
			unsaved = append(unsaved, fmt.Errorf("%s: %w", at, err))
		case err != nil:
			return nil, nil, err
		case file != nil:
			edited[at] = file
		}
	}
	// In the order of the changes, each file once.
	for _, at := range places {
		if file := edited[at.path]; file != nil {
			files = append(files, *file)
			delete(edited, at.path)
		}
	}
	return files, unsaved, nil
}

// objectOf is what a change is about; the kind is not known of a deletion.
func objectOf(c window.Change) manifest.Object {
	return manifest.Object{
		Group: c.Object.Group, Kind: manifest.KindOf(c.Manifest), Resource: c.Object.Resource,
		Namespace: c.Object.Namespace, Name: c.Object.Name,
	}
}

// inTheWay returns what is known to stand in the way of a path.
func inTheWay(path string, skip map[string]error) error {
	for ; path != "."; path = pathpkg.Dir(path) {
		if err := skip[path]; err != nil {
			return err
		}
	}
	return nil
}

// editOne returns the file with the change, earlier being what the same commit has
// made of it already; nil when the file says it already.
func editOne(ctx context.Context, tree *git.Tree, path string, object manifest.Object, c window.Change, earlier *git.File) (*git.File, error) {
	var before []byte
	exists := false
	if earlier != nil {
		before, exists = earlier.Content, earlier.Content != nil
	} else {
		var err error
		before, err = tree.Read(ctx, path)
		exists = err == nil
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if c.Operation == window.Delete {
		if !exists {
			return nil, nil
		}
		after, err := manifest.Remove(before, object)
		if err != nil {
			return nil, err
		}
		return &git.File{Path: path, Content: after}, nil
	}
	if !exists {
		return &git.File{Path: path, Content: c.Manifest}, nil
	}
	after, err := manifest.Edit(before, c.Manifest)
	if err != nil || bytes.Equal(before, after) {
		return nil, err
	}
	return &git.File{Path: path, Content: after}, nil
}
