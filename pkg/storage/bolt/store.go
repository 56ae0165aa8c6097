// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// maxRequestBytes is etcd's default limit of one request. Ours is the same, so
// that an object never fits here and not there.
const maxRequestBytes = 1.5 * 1024 * 1024

// storeConfig describes one resource to newStore.
type storeConfig struct {
	groupResource schema.GroupResource
	codec         runtime.Codec
	transformer   value.Transformer // nil: none
	// newFunc makes the object that bookmarks carry.
	newFunc func() runtime.Object
	// pathPrefix and resourcePrefix come before every key, in this order.
	pathPrefix, resourcePrefix string
}

// store is storage.Interface over one resource. Safe for concurrent use.
type store struct {
	resource       *resource
	groupResource  schema.GroupResource
	codec          runtime.Codec
	versioner      storage.APIObjectVersioner
	transformer    value.Transformer
	newFunc        func() runtime.Object
	objectType     reflect.Type // of what newFunc returns, nil without
	pathPrefix     string       // ends in "/"
	resourcePrefix string
	unsafeDeletion bool // the feature gate AllowUnsafeMalformedObjectDeletion
	sizes          atomic.Bool
}

var _ storage.Interface = (*store)(nil)

func (db *DB) newStore(c storeConfig) (*store, error) {
	if !strings.HasPrefix(c.resourcePrefix, "/") || c.resourcePrefix == "/" {
		return nil, fmt.Errorf("storage of %s: resource prefix %q must start with / and name the resource", c.groupResource, c.resourcePrefix)
	}
	if c.transformer == nil {
		c.transformer = identity.NewEncryptCheckTransformer()
	}
	r, err := db.resource(c.groupResource)
	if err != nil {
		return nil, err
	}
	var objectType reflect.Type
	if c.newFunc != nil {
		objectType = reflect.TypeOf(c.newFunc())
	}
	return &store{
		resource:       r,
		objectType:     objectType,
		groupResource:  c.groupResource,
		codec:          c.codec,
		transformer:    c.transformer,
		newFunc:        c.newFunc,
		pathPrefix:     strings.TrimSuffix(path.Join("/", c.pathPrefix), "/") + "/",
		resourcePrefix: c.resourcePrefix,
		unsafeDeletion: utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion),
	}, nil
}

// Versioner implements storage.Interface.
func (s *store) Versioner() storage.Versioner { return s.versioner }

// ReadinessCheck implements storage.Interface.
func (s *store) ReadinessCheck() error { return s.resource.db.Ready() }

// CompactRevision implements storage.Interface.
func (s *store) CompactRevision() int64 { return int64(s.resource.compacted.Load()) }

// GetCurrentResourceVersion implements storage.Interface.
func (s *store) GetCurrentResourceVersion(context.Context) (uint64, error) {
	return s.resource.feed.revision(), nil
}

// RequestWatchProgress implements storage.Interface: watches with
// ProgressNotify get a bookmark as soon as they have caught up.
func (s *store) RequestWatchProgress(context.Context) error {
	s.resource.feed.requestProgress()
	return nil
}

// EnableResourceSizeEstimation implements storage.Interface. The sizes are
// counted with every write, so the keys are not asked for.
func (s *store) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	if keys == nil {
		return errors.New("KeysFunc cannot be nil")
	}
	if !s.sizes.CompareAndSwap(false, true) {
		return errors.New("size estimation is already enabled")
	}
	return nil
}

// Stats implements storage.Interface, exactly and in constant time.
func (s *store) Stats(context.Context) (storage.Stats, error) {
	c := s.resource.counters.Load()
	stats := storage.Stats{ObjectCount: c.count}
	if s.sizes.Load() && c.count > 0 {
		stats.EstimatedAverageObjectSizeBytes = c.bytes / c.count
	}
	return stats, nil
}

// Get implements storage.Interface.
func (s *store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	prepared, err := s.prepareKey(key, false)
	if err != nil {
		return err
	}
	current, newest, err := s.load(prepared)
	if err != nil {
		return err
	}
	if err := s.checkMinimum(opts.ResourceVersion, newest); err != nil {
		return err
	}
	if current.rev == 0 {
		if opts.IgnoreNotFound {
			return runtime.SetZeroValue(out)
		}
		return storage.NewKeyNotFoundError(prepared, 0)
	}
	if err := s.intact(current.value, current.rev); err != nil {
		return s.readError(key, err)
	}
	data, _, err := s.transformer.TransformFromStorage(ctx, current.value, keyContext(prepared))
	if err != nil {
		return s.readError(key, storage.NewInternalError(err))
	}
	return s.readError(key, s.decode(data, out, current.rev))
}

// load returns a copy of what is stored under a prepared key, and the revision
// it was read at.
func (s *store) load(key string) (o object, newest uint64, err error) {
	err = s.resource.read(0, func(v *view) error {
		newest = v.at
		if o, err = v.get(key); err != nil {
			return err
		}
		o.value = bytes.Clone(o.value)
		return nil
	})
	return o, newest, err
}

// checkMinimum keeps the promise that an answer is not older than the
// resourceVersion a client has seen.
func (s *store) checkMinimum(minimum string, actual uint64) error {
	if minimum == "" {
		return nil
	}
	rev, err := s.versioner.ParseResourceVersion(minimum)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if rev > actual {
		return storage.NewTooLargeResourceVersionError(rev, actual, 0)
	}
	return nil
}

// Create implements storage.Interface.
func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	prepared, err := s.prepareKey(key, false)
	if err != nil {
		return err
	}
	if version, err := s.versioner.ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	data, err := s.encode(obj)
	if err != nil {
		return err
	}
	answer := &answer{s: s, data: data}
	rev, err := s.write(ctx, prepared, data, 0, ttl, func() {
		if out != nil {
			answer.prepare(out)
		}
	})
	if errors.Is(err, errExists) {
		return storage.NewKeyExistsError(prepared, 0)
	}
	if err != nil || out == nil {
		return err
	}
	return answer.give(out, rev)
}

func (s *store) encode(obj runtime.Object) ([]byte, error) {
	if err := s.versioner.PrepareObjectForStorage(obj); err != nil {
		return nil, fmt.Errorf("PrepareObjectForStorage failed: %w", err)
	}
	return runtime.Encode(s.codec, obj)
}

// write stores data under a prepared key that must be at revision want, and
// spends the time that takes in meanwhile. Errors: errExists, errConflict, and
// those of the commit.
func (s *store) write(ctx context.Context, key string, data []byte, want uint64, ttl uint64, meanwhile func()) (uint64, error) {
	stored, err := s.transformer.TransformToStorage(ctx, data, keyContext(key))
	if err != nil {
		return 0, storage.NewInternalError(err)
	}
	if size := len(key) + len(stored); size > maxRequestBytes {
		return 0, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s takes %d bytes in storage, the limit is %d", key, size, int(maxRequestBytes)))
	}
	return s.commit(ctx, len(stored), meanwhile, func(p *pending) (uint64, error) {
		return p.put(key, stored, want, expiryOf(p.b.now, ttl))
	})
}

// commit runs f in the next batch, unless ctx ends before that takes it.
func (s *store) commit(ctx context.Context, size int, meanwhile func(), f func(*pending) (uint64, error)) (uint64, error) {
	var rev uint64
	err := s.resource.db.submitAnd(size, func(b *batch) error {
		if err := ctx.Err(); err != nil {
			return refusal{err}
		}
		p, err := b.resource(s.resource)
		if err != nil {
			return err
		}
		rev, err = f(p)
		return err
	}, meanwhile)
	return rev, err
}

// state is what GuaranteedUpdate and Delete decide on.
type state struct {
	rev    uint64         // 0: there is nothing
	object runtime.Object // nil: cannot be read
	data   []byte         // decrypted, as encoded
	stale  bool           // must be written again even if unchanged
}

// current reads the state at a prepared key into a new object like out.
func (s *store) current(ctx context.Context, key string, out runtime.Object) (state, error) {
	o, _, err := s.load(key)
	if err != nil {
		return state{}, err
	}
	st := state{rev: o.rev}
	if st.object, err = newLike(out); err != nil || o.rev == 0 {
		return st, err
	}
	if err := s.intact(o.value, o.rev); err != nil {
		st.object = nil
		return st, s.readError(key, err)
	}
	if st.data, st.stale, err = s.transformer.TransformFromStorage(ctx, o.value, keyContext(key)); err != nil {
		st.object = nil
		return st, storage.NewInternalError(err)
	}
	if err := s.decode(st.data, st.object, o.rev); err != nil {
		st.object = nil
		return st, err
	}
	return st, nil
}

// Delete implements storage.Interface. The suggestion is not used: the read it
// would save is a memory access here.
func (s *store) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, opts storage.DeleteOptions,
) error {
	prepared, err := s.prepareKey(key, false)
	if err != nil {
		return err
	}
	expectUnreadable := opts.ExpectTransformOrDecodeError && s.unsafeDeletion
	for {
		st, err := s.current(ctx, prepared, out)
		switch {
		case st.rev == 0 && err == nil:
			return storage.NewKeyNotFoundError(prepared, 0)
		case expectUnreadable && st.rev != 0 && st.object == nil:
			// What the caller said: delete it unread.
		case err != nil:
			return err
		case expectUnreadable:
			return storage.NewInvalidObjError(prepared, "unsafe deletion is not allowed because the object is decodable from storage")
		}
		if err := preconditions.Check(prepared, st.object); err != nil {
			return err
		}
		if err := validate(ctx, st.object); err != nil {
			return err
		}
		answer := &answer{s: s, data: st.data}
		rev, err := s.commit(ctx, 0, func() { answer.prepare(out) }, func(p *pending) (uint64, error) { return p.delete(prepared, st.rev) })
		switch {
		case errors.Is(err, errConflict):
			continue // decide again on what is there now
		case err != nil || expectUnreadable:
			return err
		}
		return answer.give(out, rev)
	}
}

// GuaranteedUpdate implements storage.Interface. The suggestion is not used, as
// in Delete.
func (s *store) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object,
) error {
	prepared, err := s.prepareKey(key, false)
	if err != nil {
		return err
	}
	for {
		st, err := s.current(ctx, prepared, out)
		if err != nil {
			return err
		}
		if st.rev == 0 && !ignoreNotFound {
			return storage.NewKeyNotFoundError(prepared, 0)
		}
		if err := preconditions.Check(prepared, st.object); err != nil {
			return err
		}
		updated, ttl, err := update(st.object, storage.ResponseMeta{ResourceVersion: st.rev})
		if err != nil {
			return err
		}
		data, err := s.encode(updated)
		if err != nil {
			return err
		}
		if st.rev != 0 && !st.stale && bytes.Equal(data, st.data) {
			return s.decode(st.data, out, st.rev) // nothing to write
		}
		answer := &answer{s: s, data: data}
		rev, err := s.write(ctx, prepared, data, st.rev, seconds(ttl), func() { answer.prepare(out) })
		if errors.Is(err, errConflict) || errors.Is(err, errExists) {
			continue // decide again on what is there now
		}
		if err != nil {
			return err
		}
		return answer.give(out, rev)
	}
}

func seconds(ttl *uint64) uint64 {
	if ttl == nil {
		return 0
	}
	return *ttl
}

// deadline is when a watch should say goodbye with a bookmark; zero: never.
func deadline(ctx context.Context) time.Time {
	t, _ := ctx.Deadline()
	return t
}
