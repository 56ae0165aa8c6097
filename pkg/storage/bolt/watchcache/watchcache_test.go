// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// The functions of the suite that upstream's own tests of the watch cache run.

func TestStore(t *testing.T) {
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
		"CreateWithTTL":                              storagetesting.RunTestCreateWithTTL,
		"CreateWithKeyExist":                         storagetesting.RunTestCreateWithKeyExist,
		"Get":                                        storagetesting.RunTestGet,
		"UnconditionalDelete":                        storagetesting.RunTestUnconditionalDelete,
		"ConditionalDelete":                          storagetesting.RunTestConditionalDelete,
		"DeleteWithSuggestion":                       storagetesting.RunTestDeleteWithSuggestion,
		"DeleteWithSuggestionAndConflict":            storagetesting.RunTestDeleteWithSuggestionAndConflict,
		"DeleteWithSuggestionOfDeletedObject":        storagetesting.RunTestDeleteWithSuggestionOfDeletedObject,
		"ValidateDeletionWithSuggestion":             storagetesting.RunTestValidateDeletionWithSuggestion,
		"ValidateDeletionWithOnlySuggestionValid":    storagetesting.RunTestValidateDeletionWithOnlySuggestionValid,
		"DeleteWithConflict":                         storagetesting.RunTestDeleteWithConflict,
		"PreconditionalDeleteWithSuggestion":         storagetesting.RunTestPreconditionalDeleteWithSuggestion,
		"PreconditionalDeleteWithOnlySuggestionPass": storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass,
		"ListPaging":                                 storagetesting.RunTestListPaging,
		"GetListRecursivePrefix":                     storagetesting.RunTestGetListRecursivePrefix,
		"GuaranteedUpdateWithTTL":                    storagetesting.RunTestGuaranteedUpdateWithTTL,
		"GuaranteedUpdateWithSuggestionAndConflict":  storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict,
	} {
		t.Run(name, func(t *testing.T) { run(t.Context(), t, newCached(t)) })
	}
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
		"GuaranteedUpdateWithConflict": storagetesting.RunTestGuaranteedUpdateWithConflict,
		"KeySchema":                    storagetesting.RunTestKeySchema,
	} {
		t.Run(name, func(t *testing.T) { run(t.Context(), t, newCached(t, misnamed)) })
	}
	t.Run("Create", func(t *testing.T) {
		// What is stored is checked on the store itself, in the package above.
		storagetesting.RunTestCreate(t.Context(), t, newCached(t), func(context.Context, *testing.T, string) {})
	})
	t.Run("NamespaceScopedList", func(t *testing.T) {
		storagetesting.RunTestNamespaceScopedList(t.Context(), t, newCached(t, indexed))
	})
	t.Run("CompactRevision", func(t *testing.T) {
		c := newCached(t)
		storagetesting.RunTestCompactRevision(t.Context(), t, c, c.increaseRV, c.compact)
	})
	for _, sizes := range []bool{true, false} {
		t.Run(fmt.Sprintf("Stats/SizeBasedListCostEstimate=%v", sizes), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SizeBasedListCostEstimate, sizes)
			storagetesting.RunTestStats(t.Context(), t, newCached(t), newCodec(), identity.NewEncryptCheckTransformer(), sizes)
		})
	}
}

// How many reads a page costs is bounded on the store itself.
func TestPages(t *testing.T) {
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface, storagetesting.CallsValidation){
		"ListContinuation":           storagetesting.RunTestListContinuation,
		"ListPaginationRareObject":   storagetesting.RunTestListPaginationRareObject,
		"ListContinuationWithFilter": storagetesting.RunTestListContinuationWithFilter,
	} {
		t.Run(name, func(t *testing.T) { run(t.Context(), t, newCached(t), nil) })
	}
}

// With the gate ListFromCacheSnapshot, which is on by default, the cache answers
// all of these lists itself, except those of compacted revisions. Without it the
// suite asserts how etcd's client pages through the others, so that run is left out
// here. Two lists that make no sense with a cache are skipped by the suite itself.
func TestList(t *testing.T) {
	c := newCached(t)
	t.Run("List", func(t *testing.T) {
		storagetesting.RunTestList(t.Context(), t, c, c.compact, true, storagetesting.NewKubernetesRecorder(nil))
	})
	if n := c.store.passedOn.Load(); n != 0 {
		t.Errorf("the store answered %d lists, want none", n)
	}
}

func TestFreshLists(t *testing.T) {
	for _, snapshots := range []bool{true, false} {
		t.Run(fmt.Sprintf("ListFromCacheSnapshot=%v", snapshots), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ListFromCacheSnapshot, snapshots)
			t.Run("ConsistentList", func(t *testing.T) {
				c := newCached(t)
				storagetesting.RunTestConsistentList(t.Context(), t, c, c.increaseRV, true, true, snapshots)
			})
			t.Run("GetListNonRecursive", func(t *testing.T) {
				c := newCached(t)
				storagetesting.RunTestGetListNonRecursive(t.Context(), t, c.increaseRV, c)
			})
		})
	}
}

// failing makes reads fail while on.
type failing struct {
	value.Transformer
	runtime.Codec
	on atomic.Bool
}

func (f *failing) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	if f.on.Load() {
		return nil, false, errors.New("cannot be decrypted")
	}
	return f.Transformer.TransformFromStorage(ctx, data, dataCtx)
}

func (f *failing) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if f.on.Load() {
		return nil, nil, errors.New("cannot be decoded")
	}
	return f.Codec.Decode(data, defaults, into)
}

func TestDeleteOfWhatCannotBeRead(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, true)
	for name, test := range map[string]struct {
		use func(*options, *failing)
		run func(context.Context, testing.TB, storage.Interface, func(bool))
	}{
		"conflict, readable again": {
			func(o *options, f *failing) { o.transformer = f },
			storagetesting.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError,
		},
		"not transformable": {
			func(o *options, f *failing) { o.transformer = f },
			storagetesting.RunTestDeleteExpectedTransformOrDecodeError,
		},
		"not decodable": {
			func(o *options, f *failing) { o.codec = f },
			storagetesting.RunTestDeleteExpectedTransformOrDecodeError,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failing{Transformer: identity.NewEncryptCheckTransformer(), Codec: newCodec()}
			c := newCached(t, func(o *options) { test.use(o, f) })
			// The cache may or may not have met the failure before the comparison
			// at the end; a new one has not.
			t.Cleanup(func() { f.on.Store(false); c.restart(t) })
			test.run(t.Context(), t, c, f.on.Store)
		})
	}
	t.Run("suggestion, readable", func(t *testing.T) {
		storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(t.Context(), t, newCached(t))
	})
}

func TestWatch(t *testing.T) {
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
		"Watch":                                  storagetesting.RunTestWatch,
		"DeleteTriggerWatch":                     storagetesting.RunTestDeleteTriggerWatch,
		"WatchFromNonZero":                       storagetesting.RunTestWatchFromNonZero,
		"DelayedWatchDelivery":                   storagetesting.RunTestDelayedWatchDelivery,
		"WatcherTimeout":                         storagetesting.RunTestWatcherTimeout,
		"WatchDeleteEventObjectHaveLatestRV":     storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV,
		"WatchInitializationSignal":              storagetesting.RunTestWatchInitializationSignal,
		"BookmarksWithCorrectResourceVersion":    storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion,
		"SendInitialEventsBackwardCompatibility": storagetesting.RunSendInitialEventsBackwardCompatibility,
	} {
		t.Run(name, func(t *testing.T) { run(t.Context(), t, newCached(t)) })
	}
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
		"WatchSemantics":                     storagetesting.RunWatchSemantics,
		"WatchSemanticInitialEventsExtended": storagetesting.RunWatchSemanticInitialEventsExtended,
		"WatchListMatchSingle":               storagetesting.RunWatchListMatchSingle,
	} {
		t.Run(name, func(t *testing.T) { run(t.Context(), t, fresh{newCached(t)}) })
	}
	t.Run("WatchFromZero", func(t *testing.T) {
		c := newCached(t)
		storagetesting.RunTestWatchFromZero(t.Context(), t, c, c.compactAndRestart)
	})
	t.Run("ClusterScopedWatch", func(t *testing.T) {
		storagetesting.RunTestClusterScopedWatch(t.Context(), t, newCached(t, clusterScoped, indexed))
	})
	t.Run("NamespaceScopedWatch", func(t *testing.T) {
		storagetesting.RunTestNamespaceScopedWatch(t.Context(), t, newCached(t, indexed))
	})
	t.Run("WatchDispatchBookmarkEvents", func(t *testing.T) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(t.Context(), t, newCached(t), true)
	})
}
