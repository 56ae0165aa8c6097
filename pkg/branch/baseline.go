// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/manifest"
	"github.com/kommit-dev/kommit/pkg/window"
)

// Differing compares complete lists with what is on the branch (C9). scope names
// what was listed, by group, resource and namespace. It returns the listed
// changes that Git does not hold yet, in their order, and the objects that have
// a file in the scope and were not listed; those only where the target prunes.
// The error is a *StalledError when the target cannot be read as things are.
func (p *Pool) Differing(ctx context.Context, target types.NamespacedName, scope []window.Object, listed []window.Change) (differing []window.Change, orphans []window.Object, err error) {
	d, err := p.destinations.resolve(target)
	if err != nil {
		return nil, nil, err
	}
	tree, err := d.repository.Tree(ctx, d.remote.branch)
	if err != nil {
		return nil, nil, err
	}
	// By path: the hash of each file in the directories of the scope.
	hashes := map[string]string{}
	for _, o := range scope {
		dir := path.Dir(manifest.Path(d.path, o.Group, o.Resource, o.Namespace, "name"))
		entries, err := tree.List(ctx, dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		for _, entry := range entries {
			hashes[path.Join(dir, entry.Name)] = entry.Hash
		}
	}
	for _, change := range listed {
		file := manifest.Path(d.path, change.Object.Group, change.Object.Resource, change.Object.Namespace, change.Object.Name)
		hash, exists := hashes[file]
		delete(hashes, file)
		if exists && hash == git.BlobHash(change.Manifest) {
			continue
		}
		if exists {
			// Other bytes may say the same.
			if same, err := editOne(ctx, tree, file, change); err == nil && same == nil {
				continue
			}
		}
		differing = append(differing, change)
	}
	if !d.prune {
		return differing, nil, nil
	}
	for _, o := range scope {
		dir := path.Dir(manifest.Path(d.path, o.Group, o.Resource, o.Namespace, "name"))
		for _, file := range slices.Sorted(maps.Keys(hashes)) {
			if name, ok := strings.CutSuffix(path.Base(file), ".yaml"); ok && path.Dir(file) == dir {
				o.Name = name
				orphans = append(orphans, o)
			}
		}
	}
	return differing, orphans, nil
}
