// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"

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
	objects := make([]manifest.Object, len(listed))
	for i, change := range listed {
		objects[i] = objectOf(change)
	}
	places, err := d.layout.places(ctx, tree, objects)
	if err != nil {
		return nil, nil, err
	}
	for i, change := range listed {
		if at := places[i]; at.refused == nil && at.hash != "" {
			if at.hash == git.BlobHash(change.Manifest) {
				continue
			}
			// Other bytes may say the same.
			if same, err := editOne(ctx, tree, at.path, objects[i], change, nil); err == nil && same == nil {
				continue
			}
		}
		differing = append(differing, change)
	}
	if !d.prune {
		return differing, nil, nil
	}
	alive := map[window.Object]bool{}
	for _, change := range listed {
		alive[change.Object] = true
	}
	for _, o := range scope {
		have, err := d.layout.objects(ctx, tree, o)
		if err != nil {
			return nil, nil, err
		}
		for _, h := range have {
			if o.Name = h.Name; !alive[o] {
				orphans = append(orphans, o)
			}
		}
	}
	return differing, orphans, nil
}
