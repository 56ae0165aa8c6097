// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	storagemetrics "k8s.io/apiserver/pkg/storage/metrics"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Bounds of one read transaction of a list. What it copied is decoded before
// the next one begins, all at the same revision.
const (
	maxChunkItems = 10000
	maxChunkBytes = 4 << 20
)

// entry is one object copied out of a transaction.
type entry struct {
	key    string
	rev    uint64
	value  []byte
	cached *cachedObject // what this value was decoded to, if known
}

// chunk is what one transaction of a list found.
type chunk struct {
	entries []entry
	at      uint64 // the revision read
	more    bool   // there are objects after the last entry
	rest    int64  // how many, if asked for
}

// readChunk copies up to limit objects of [from, end) at revision rev, 0 the
// newest. count asks for the number of the remaining ones.
func (r *resource) readChunk(from, end string, rev uint64, limit int64, count bool) (chunk, error) {
	var c chunk
	err := r.read(rev, func(v *view) error {
		c = chunk{at: v.at}
		size := 0
		for it, err := range v.walk(from, end) {
			if err != nil {
				return err
			}
			if int64(len(c.entries)) >= limit || size >= maxChunkBytes {
				c.more = true
				c.rest++
				if !count {
					return nil
				}
				continue
			}
			c.entries = append(c.entries, r.db.cache.entry(r, it))
			size += len(it.object.value)
		}
		return nil
	})
	return c, err
}

// readOne is readChunk for the one object at key.
func (r *resource) readOne(key string, rev uint64) (chunk, error) {
	var c chunk
	err := r.read(rev, func(v *view) error {
		c = chunk{at: v.at}
		o, err := v.get(key)
		if err != nil {
			return err
		}
		if o.rev != 0 {
			c.entries = []entry{{key: key, rev: o.rev, value: bytes.Clone(o.value)}}
		}
		return nil
	})
	return c, err
}

// entry copies an object of r, unless the cache has it. Keys and revisions of
// different resources may be the same.
func (c *decodedCache) entry(r *resource, it item) entry {
	if it.object.value != nil {
		if o := c.get(it.key, it.object.rev); o != nil && o.by.resource == r {
			return entry{key: o.key, rev: o.rev, value: o.stored, cached: o}
		}
	}
	return entry{key: string(it.key), rev: it.object.rev, value: bytes.Clone(it.object.value)}
}

// GetList implements storage.Interface.
func (s *store) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	prefix, err := s.prepareKey(key, opts.Recursive)
	if err != nil {
		return err
	}
	itemsPtr, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(itemsPtr)
	if err != nil {
		return fmt.Errorf("need ptr to slice: %w", err)
	}
	if items.Kind() != reflect.Slice {
		return fmt.Errorf("need ptr to slice, got %s", items.Kind())
	}
	items.SetZero() // a list that is used again does not keep what it had
	rev, continueKey, err := storage.ValidateListOptions(prefix, s.versioner, opts)
	if err != nil {
		return err
	}
	l := &lister{s: s, pred: opts.Predicate, items: items, newItem: newItem(list, items), itemType: reflect.PointerTo(items.Type().Elem()), corrupt: corruptions{collect: s.unsafeDeletion}}
	at, more, err := l.run(ctx, prefix, continueKey, uint64(rev), opts)
	storagemetrics.RecordStorageListMetrics(s.groupResource, "bolt", "", l.fetched, l.evaluated, items.Len())
	if err != nil {
		return err
	}
	if err := l.corrupt.err(s.groupResource); err != nil {
		return err
	}
	// Upstream subtracts the limit from the number of objects from the start
	// of the page on.
	token, remaining, err := storage.PrepareContinueToken(l.last, prefix, int64(at), more.rest+opts.Predicate.Limit, more.more, opts)
	if err != nil {
		return err
	}
	if items.IsNil() {
		items.Set(reflect.MakeSlice(items.Type(), 0, 0))
	}
	if err := s.versioner.UpdateList(list, at, token, remaining); err != nil {
		return err
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		opts.Predicate.SetShardInfoOnList(list)
	}
	return nil
}

// lister fills one list.
type lister struct {
	s        *store
	pred     storage.SelectionPredicate
	items    reflect.Value
	newItem  func() runtime.Object
	itemType reflect.Type // of what newItem returns
	corrupt  corruptions
	last     string // the last key looked at
	// for the metrics that etcd3 has, too
	fetched, evaluated int
}

// remainder says what the list left out.
type remainder struct {
	more bool
	rest int64
}

func (l *lister) full() bool {
	return l.pred.Limit > 0 && int64(l.items.Len()) >= l.pred.Limit
}

// run reads chunk after chunk, all at the revision of the first, until the
// limit or the end is reached.
func (l *lister) run(ctx context.Context, prefix, continueKey string, rev uint64, opts storage.ListOptions) (uint64, remainder, error) {
	s, from, limit := l.s, prefix, l.pred.Limit
	if continueKey != "" {
		from = continueKey
	}
	if limit <= 0 {
		limit = maxChunkItems
	}
	for pinned := rev; ; {
		c, err := l.read(from, prefix, pinned, limit, opts)
		if err != nil {
			return 0, remainder{}, listError(err, prefix, continueKey)
		}
		if pinned == 0 {
			if err := s.checkMinimum(opts.ResourceVersion, c.at); err != nil {
				return 0, remainder{}, err
			}
		}
		pinned = c.at
		l.fetched += len(c.entries)
		if l.pred.Empty() {
			l.items.Grow(len(c.entries))
		}
		for i, e := range c.entries {
			if l.full() {
				return c.at, remainder{more: true}, nil
			}
			l.last = e.key
			l.evaluated++
			if end, err := l.add(ctx, e); err != nil || end {
				return c.at, remainder{}, err
			}
			c.entries[i].value = nil
		}
		if !c.more || l.full() {
			return c.at, remainder{more: c.more, rest: c.rest}, nil
		}
		from = l.last + "\x00"
		// A selector dropped objects, or the chunk was cut by its size.
		limit = min(2*limit, maxChunkItems)
	}
}

func (l *lister) read(from, prefix string, rev uint64, limit int64, opts storage.ListOptions) (chunk, error) {
	if !opts.Recursive {
		return l.s.resource.readOne(prefix, rev)
	}
	// Only a page without a selector says how many are left.
	count := l.pred.Limit > 0 && l.pred.Empty()
	if count {
		limit = l.pred.Limit - int64(l.items.Len())
	}
	return l.s.resource.readChunk(from, prefixEnd(prefix), rev, limit, count)
}

// add decodes one object into the list. end ends the list with what
// l.corrupt says.
func (l *lister) add(ctx context.Context, e entry) (end bool, err error) {
	s := l.s
	if err := s.intact(e.value, e.rev); err != nil {
		return l.corrupt.add(e.key, err), nil
	}
	data, _, err := s.transformer.TransformFromStorage(ctx, e.value, keyContext(e.key))
	if err != nil {
		return l.corrupt.add(e.key, storage.NewInternalError(fmt.Errorf("unable to transform key %q: %w", e.key, err))), nil
	}
	if ctx.Err() != nil {
		return true, storage.NewTimeoutError(e.key, "request did not complete within requested timeout")
	}
	obj, err := s.decodeEntry(e, data, l.itemType, func() (runtime.Object, error) { return s.decodeItem(data, l.newItem(), e.rev) })
	if err != nil {
		return l.corrupt.add(e.key, err), nil
	}
	if matched, err := l.pred.Matches(obj); err == nil && matched {
		l.items.Set(reflect.Append(l.items, reflect.ValueOf(obj.DeepCopyObject()).Elem()))
	}
	return false, nil
}

// decodeEntry decodes data, the decrypted value of e, into an object of type t,
// unless that was done before. What it returns is shared: it is not to be
// written to.
func (s *store) decodeEntry(e entry, data []byte, t reflect.Type, decode func() (runtime.Object, error)) (runtime.Object, error) {
	if e.cached.answers(s, data, t) {
		return e.cached.object, nil
	}
	obj, err := decode()
	if err != nil {
		return nil, err
	}
	// How an unstructured object is decoded depends on what it is decoded into.
	if _, ok := obj.(runtime.Unstructured); !ok {
		s.resource.db.cache.put(&cachedObject{rev: e.rev, key: e.key, stored: e.value, by: s, data: data, object: obj})
	}
	return obj, nil
}
