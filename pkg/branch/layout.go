// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/manifest"
	"github.com/kommit-dev/kommit/pkg/window"
)

// IndexStore keeps what was found in the files of targets, by the hash of each
// file, so that a restart does not read the repositories again. It is a cache: what
// it loses is found again. Must be safe for concurrent use.
type IndexStore interface {
	// Load returns all that is kept for the target of that UID.
	Load(target string) (map[string][]byte, error)
	// Change keeps some hashes and drops others.
	Change(target string, kept map[string][]byte, dropped []string) error
	// Drop forgets a target.
	Drop(target string) error
}

// readAtOnce is how many files are fetched, and held, at the same time.
const readAtOnce = 1000

// layout knows which files under a target's path hold which objects (C13). It
// follows the trees that it is shown: a directory that is the same as before costs
// nothing, and neither does a file whose content was seen before. Safe for
// concurrent use; one at a time, a second caller waits.
type layout struct {
	target string // UID
	base   string
	store  IndexStore // may be nil

	mu    sync.Mutex
	files *manifest.Layout
	root  *directory
	// indexes by hash: those of the files in the tree, and of others seen lately.
	indexes map[string]manifest.File
	// uses counts the files in the tree by hash.
	uses map[string]int
	// changed are hashes that came into the tree, or left it, since the last save, and
	// stored are those that the store has.
	changed, stored map[string]bool
	saving          bool
}

// directory is one as it was last seen. It is not changed once it is made.
type directory struct {
	hash        string // empty for the target's own
	files       map[string]string
	directories map[string]*directory
}

func newLayout(target, base string, store IndexStore) *layout {
	return &layout{
		target: target, base: base, store: store, files: manifest.NewLayout(base), root: &directory{},
		uses: map[string]int{}, changed: map[string]bool{}, stored: map[string]bool{},
	}
}

// place is where an object is, or goes.
type place struct {
	path string
	// hash of the file that holds the object; empty when none does.
	hash string
	// refused says why the object has no one place; path is where it would go.
	refused error
}

// places says where each object is on the tree, or goes. err: the remote, or ctx.
func (l *layout) places(ctx context.Context, tree *git.Tree, objects []manifest.Object) ([]place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.follow(ctx, tree); err != nil {
		return nil, err
	}
	places := make([]place, len(objects))
	for i, o := range objects {
		at, err := l.files.Place(o)
		switch {
		case err != nil:
			places[i] = place{path: l.path(o), refused: err}
		case at.Entry == nil:
			places[i] = place{path: at.Path}
		default:
			places[i] = place{path: at.Path, hash: l.root.hashOf(strings.TrimPrefix(strings.TrimPrefix(at.Path, l.base), "/"))}
		}
	}
	return places, nil
}

// path is where a new file for the object goes.
func (l *layout) path(o manifest.Object) string {
	return manifest.Path(l.base, o.Group, o.Resource, o.Namespace, o.Name)
}

// hashOf returns the hash of a file by its path from here.
func (d *directory) hashOf(name string) string {
	for {
		first, rest, below := strings.Cut(name, "/")
		if !below {
			return d.files[name]
		}
		if d = d.directories[first]; d == nil {
			return ""
		}
		name = rest
	}
}

// objects are those of a resource in a namespace that the tree has files for.
func (l *layout) objects(ctx context.Context, tree *git.Tree, o window.Object) ([]manifest.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.follow(ctx, tree); err != nil {
		return nil, err
	}
	return l.files.Objects(o.Group, "", o.Resource, o.Namespace), nil
}

// known is where an object was when a tree was last seen, without waiting for
// anybody: where it would go, if somebody is at work.
func (l *layout) known(o manifest.Object) string {
	if l.mu.TryLock() {
		defer l.mu.Unlock()
		if at, err := l.files.Place(o); err == nil {
			return at.Path
		}
	}
	return l.path(o)
}

// difference is what a tree has that the last one had not, and the other way round.
type difference struct {
	set  map[string]string // path to hash
	gone map[string]string
}

// follow brings the layout up to the tree. Caller must hold mu.
func (l *layout) follow(ctx context.Context, tree *git.Tree) error {
	if l.indexes == nil {
		l.load(ctx)
	}
	d := difference{set: map[string]string{}, gone: map[string]string{}}
	root, err := d.walk(ctx, tree, l.base, "", l.root)
	if err != nil {
		return err
	}
	if err := l.read(ctx, tree, d.set); err != nil {
		return err
	}
	for name, hash := range d.gone {
		if d.set[name] == "" {
			l.files.Set(name, manifest.File{})
		}
		l.uses[hash]--
		l.changed[hash] = true
	}
	for name, hash := range d.set {
		l.files.Set(name, l.indexes[hash])
		l.uses[hash]++
		l.changed[hash] = true
	}
	l.root = root
	l.save(ctx)
	return nil
}

// walk compares one directory with what it was, and returns what it is.
func (d *difference) walk(ctx context.Context, tree *git.Tree, dir, hash string, before *directory) (*directory, error) {
	if hash != "" && hash == before.hash {
		return before, nil
	}
	entries, err := tree.List(ctx, dir)
	var notRegular *git.NotRegularError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &notRegular) {
		err = nil // nothing there; a link is not followed
	}
	if err != nil {
		return nil, err
	}
	now := &directory{hash: hash, files: map[string]string{}, directories: map[string]*directory{}}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		switch {
		case e.Kind == git.KindDirectory:
			was := before.directories[e.Name]
			if was == nil {
				was = &directory{}
			}
			if now.directories[e.Name], err = d.walk(ctx, tree, name, e.Hash, was); err != nil {
				return nil, err
			}
		case (e.Kind == git.KindFile || e.Kind == git.KindExecutable) && manifest.IsManifest(e.Name):
			now.files[e.Name] = e.Hash
			if before.files[e.Name] != e.Hash {
				d.set[name] = e.Hash
			}
		}
	}
	for name, hash := range before.files {
		if now.files[name] != hash {
			d.gone[path.Join(dir, name)] = hash
		}
	}
	for name, was := range before.directories {
		if now.directories[name] == nil {
			d.lose(path.Join(dir, name), was)
		}
	}
	return now, nil
}

func (d *difference) lose(dir string, was *directory) {
	for name, hash := range was.files {
		d.gone[path.Join(dir, name)] = hash
	}
	for name, below := range was.directories {
		d.lose(path.Join(dir, name), below)
	}
}

// read indexes the files that were not seen before. Caller must hold mu.
func (l *layout) read(ctx context.Context, tree *git.Tree, files map[string]string) error {
	var unread []string
	wanted := map[string]bool{}
	for name, hash := range files {
		if _, seen := l.indexes[hash]; !seen && !wanted[hash] {
			wanted[hash] = true
			unread = append(unread, name)
		}
	}
	for len(unread) > 0 {
		some := unread[:min(len(unread), readAtOnce)]
		unread = unread[len(some):]
		if err := tree.Prefetch(ctx, some...); err != nil {
			return err
		}
		for _, name := range some {
			content, err := tree.Read(ctx, name)
			if _, ok := errors.AsType[*git.NotRegularError](err); ok {
				content, err = nil, nil // what stands for a large file holds no object
			}
			if err != nil {
				return err
			}
			l.indexes[files[name]] = manifest.Index(content)
		}
	}
	return nil
}

// load takes what is kept. Caller must hold mu.
func (l *layout) load(ctx context.Context) {
	l.indexes = map[string]manifest.File{}
	if l.store == nil {
		return
	}
	kept, err := l.store.Load(l.target)
	if err != nil {
		klog.FromContext(ctx).Error(err, "What the files of a GitTarget hold is found out again", "target", l.target)
	}
	for hash, value := range kept {
		var file manifest.File
		if json.Unmarshal(value, &file) == nil {
			l.indexes[hash], l.stored[hash] = file, true
		}
		l.changed[hash] = true // dropped, if the tree does not have it
	}
}

// saveAt is how many changes are saved together: what is not saved is found again.
const saveAt = 64

// save keeps what the tree has, and forgets what it has not, once there is enough
// of it. Nobody waits for that. Caller must hold mu.
func (l *layout) save(ctx context.Context) {
	if len(l.changed) < saveAt || l.saving {
		return
	}
	kept := map[string][]byte{}
	var dropped []string
	for hash := range l.changed {
		switch {
		case l.uses[hash] > 0 && l.stored[hash]:
		case l.uses[hash] > 0:
			if encoded, err := json.Marshal(l.indexes[hash]); err == nil {
				kept[hash] = encoded
			}
		default:
			delete(l.indexes, hash)
			delete(l.uses, hash)
			dropped = append(dropped, hash)
		}
	}
	l.changed = map[string]bool{}
	if l.store == nil || len(kept)+len(dropped) == 0 {
		return
	}
	l.saving = true
	go func() {
		err := l.store.Change(l.target, kept, dropped)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.saving = false
		if err != nil {
			klog.FromContext(ctx).Error(err, "What the files of a GitTarget hold is not kept", "target", l.target)
			return
		}
		for hash := range kept {
			l.stored[hash] = true
		}
		for _, hash := range dropped {
			delete(l.stored, hash)
		}
	}()
}
