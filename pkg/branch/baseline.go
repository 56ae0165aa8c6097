// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/manifest"
	"github.com/kommit-dev/kommit/pkg/window"
)

// Differing compares complete lists with what will be on the branch when all that is
// open or closed and not on the remote yet has been committed (C9): what waits there is
// nobody else's to commit. scope names what was listed, by group, resource and
// namespace. It returns the listed changes that Git will not hold, in their order, and
// the objects that will have a file in the scope and were not listed; those only where
// the target prunes. The error is a *StalledError when the target cannot be read as
// things are.
func (p *Pool) Differing(ctx context.Context, target types.NamespacedName, scope []window.Object, listed []window.Change) (differing []window.Change, orphans []window.Object, err error) {
	if err := p.enter(ctx); err != nil {
		return nil, nil, err
	}
	// Before the branch is read: what is pushed meanwhile is there then.
	pending := p.pending(target)
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
		if last, waits := pending[change.Object]; waits {
			if last.Operation == window.Delete || !bytes.Equal(last.Manifest, change.Manifest) {
				differing = append(differing, change)
			}
			continue
		}
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
			o.Name = h.Name
			if last, waits := pending[o]; !alive[o] && !(waits && last.Operation == window.Delete) {
				orphans = append(orphans, o)
				alive[o] = true
			}
		}
	}
	unborn := len(orphans) // the rest is pending, in no order
	for o, last := range pending {
		in := o
		in.Name = ""
		if last.Operation != window.Delete && !alive[o] && slices.Contains(scope, in) {
			orphans = append(orphans, o)
		}
	}
	slices.SortFunc(orphans[unborn:], func(a, b window.Object) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	return differing, orphans, nil
}

// pending are the last changes to a target's objects that are not known to be on the
// remote.
func (p *Pool) pending(target types.NamespacedName) map[window.Object]window.Change {
	p.mu.Lock()
	defer p.mu.Unlock()
	pending := map[window.Object]window.Change{}
	if b := p.backlogs[target]; b != nil {
		for _, e := range b.entries {
			for _, c := range e.write.Changes {
				pending[c.Object] = c
			}
		}
	}
	for _, c := range p.engine.Open(target) {
		pending[c.Object] = c
	}
	return pending
}
