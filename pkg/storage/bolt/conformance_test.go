// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// The names of tests and subtests are those of etcd3's own test files, so that
// the sets of leaves can be compared.

func TestCreate(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestCreate(t.Context(), t, s, s.checkStored)
}

func TestCreateWithTTL(t *testing.T) {
	storagetesting.RunTestCreateWithTTL(t.Context(), t, newTestStore(t))
}

func TestCreateWithKeyExist(t *testing.T) {
	storagetesting.RunTestCreateWithKeyExist(t.Context(), t, newTestStore(t))
}

func TestGet(t *testing.T) { storagetesting.RunTestGet(t.Context(), t, newTestStore(t)) }

func TestUnconditionalDelete(t *testing.T) {
	storagetesting.RunTestUnconditionalDelete(t.Context(), t, newTestStore(t))
}

func TestConditionalDelete(t *testing.T) {
	storagetesting.RunTestConditionalDelete(t.Context(), t, newTestStore(t))
}

func TestDeleteWithSuggestion(t *testing.T) {
	storagetesting.RunTestDeleteWithSuggestion(t.Context(), t, newTestStore(t))
}

func TestDeleteWithSuggestionAndConflict(t *testing.T) {
	storagetesting.RunTestDeleteWithSuggestionAndConflict(t.Context(), t, newTestStore(t))
}

func TestDeleteWithSuggestionOfDeletedObject(t *testing.T) {
	storagetesting.RunTestDeleteWithSuggestionOfDeletedObject(t.Context(), t, newTestStore(t))
}

func TestValidateDeletionWithSuggestion(t *testing.T) {
	storagetesting.RunTestValidateDeletionWithSuggestion(t.Context(), t, newTestStore(t))
}

func TestValidateDeletionWithOnlySuggestionValid(t *testing.T) {
	storagetesting.RunTestValidateDeletionWithOnlySuggestionValid(t.Context(), t, newTestStore(t))
}

func TestDeleteWithConflict(t *testing.T) {
	storagetesting.RunTestDeleteWithConflict(t.Context(), t, newTestStore(t))
}

func unsafeDeletion(t *testing.T, enabled bool) {
	t.Helper()
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, enabled)
}

func TestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(t *testing.T) {
	unsafeDeletion(t, true)
	codec := &failingDecodes{Codec: testCodec()}
	s := newTestStore(t, func(_ *Config, c *storeConfig) { c.codec = codec })
	storagetesting.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(t.Context(), t, s, codec.on.Store)
}

func TestDeleteWithConflictAndExpectedTransformError(t *testing.T) {
	unsafeDeletion(t, true)
	transformer := &failingReads{}
	s := newTestStore(t, func(_ *Config, c *storeConfig) {
		transformer.Transformer = c.transformer
		c.transformer = transformer
	})
	storagetesting.RunTestDeleteExpectedTransformOrDecodeError(t.Context(), t, s, transformer.on.Store)
}

func TestDeleteWithConflictAndExpectedDecodeError(t *testing.T) {
	unsafeDeletion(t, true)
	codec := &failingDecodes{Codec: testCodec()}
	s := newTestStore(t, func(_ *Config, c *storeConfig) { c.codec = codec })
	storagetesting.RunTestDeleteExpectedTransformOrDecodeError(t.Context(), t, s, codec.on.Store)
}

func TestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeFailure(t *testing.T) {
	unsafeDeletion(t, true)
	storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(t.Context(), t, newTestStore(t))
}

func TestPreconditionalDeleteWithSuggestion(t *testing.T) {
	storagetesting.RunTestPreconditionalDeleteWithSuggestion(t.Context(), t, newTestStore(t))
}

func TestPreconditionalDeleteWithSuggestionPass(t *testing.T) {
	storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass(t.Context(), t, newTestStore(t))
}

func TestListPaging(t *testing.T) { storagetesting.RunTestListPaging(t.Context(), t, newTestStore(t)) }

func TestGetListNonRecursive(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestGetListNonRecursive(t.Context(), t, s.increaseRV, s)
}

func TestGetListRecursivePrefix(t *testing.T) {
	storagetesting.RunTestGetListRecursivePrefix(t.Context(), t, newTestStore(t))
}

func TestKeySchema(t *testing.T) { storagetesting.RunTestKeySchema(t.Context(), t, newTestStore(t)) }

func corruptObject() error {
	return &CorruptObjectError{Corruption: untransformable, Err: errors.New("bits flipped")}
}

func TestGetListWithErrorAggregation(t *testing.T) {
	unsafeDeletion(t, true)
	storagetesting.RunTestGetListWithErrorAggregation(t.Context(), t, newTestStore(t), corruptObject())
}

func TestGetListWithoutErrorAggregation(t *testing.T) {
	unsafeDeletion(t, false)
	storagetesting.RunTestGetListWithoutErrorAggregation(t.Context(), t, newTestStore(t), corruptObject())
}

func TestGuaranteedUpdate(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestGuaranteedUpdate(t.Context(), t, s, s.checkStored)
}

func TestGuaranteedUpdateWithTTL(t *testing.T) {
	storagetesting.RunTestGuaranteedUpdateWithTTL(t.Context(), t, newTestStore(t))
}

func TestGuaranteedUpdateChecksStoredData(t *testing.T) {
	storagetesting.RunTestGuaranteedUpdateChecksStoredData(t.Context(), t, newTestStore(t))
}

func TestGuaranteedUpdateWithConflict(t *testing.T) {
	storagetesting.RunTestGuaranteedUpdateWithConflict(t.Context(), t, newTestStore(t))
}

func TestGuaranteedUpdateWithSuggestionAndConflict(t *testing.T) {
	storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict(t.Context(), t, newTestStore(t))
}

func TestTransformationFailure(t *testing.T) {
	storagetesting.RunTestTransformationFailure(t.Context(), t, newTestStore(t))
}

func TestList(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestList(t.Context(), t, s, s.compact, false, nil)
}

func TestConsistentList(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestConsistentList(t.Context(), t, s, s.increaseRV, false, true, false)
}

func TestCompactRevision(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestCompactRevision(t.Context(), t, s, s.increaseRV, s.compact)
}

func TestListContinuation(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestListContinuation(t.Context(), t, s, s.checkReads)
}

func TestListPaginationRareObject(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestListPaginationRareObject(t.Context(), t, s, s.checkReads)
}

func TestListContinuationWithFilter(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestListContinuationWithFilter(t.Context(), t, s, s.checkReads)
}

func TestNamespaceScopedList(t *testing.T) {
	storagetesting.RunTestNamespaceScopedList(t.Context(), t, newTestStore(t))
}

func TestListInconsistentContinuation(t *testing.T) {
	s := newTestStore(t)
	storagetesting.RunTestListInconsistentContinuation(t.Context(), t, s, s.compact)
}

func TestListResourceVersionMatch(t *testing.T) {
	storagetesting.RunTestListResourceVersionMatch(t.Context(), t, newTestStore(t))
}

// noKeys is never asked: sizes are counted with every write.
func noKeys(context.Context) ([]string, error) { return nil, errors.New("asked for keys") }

func TestStats(t *testing.T) {
	for _, sizes := range []bool{true, false} {
		t.Run(fmt.Sprintf("SizeBasedListCostEstimate=%v", sizes), func(t *testing.T) {
			s := newTestStore(t)
			if sizes {
				if err := s.EnableResourceSizeEstimation(noKeys); err != nil {
					t.Fatal(err)
				}
			}
			storagetesting.RunTestStats(t.Context(), t, s, s.codec, s.transformer, sizes)
		})
	}
}

func TestWatch(t *testing.T) {
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
		"Watch":                                  storagetesting.RunTestWatch,
		"ClusterScopedWatch":                     storagetesting.RunTestClusterScopedWatch,
		"NamespaceScopedWatch":                   storagetesting.RunTestNamespaceScopedWatch,
		"DeleteTriggerWatch":                     storagetesting.RunTestDeleteTriggerWatch,
		"WatchFromNonZero":                       storagetesting.RunTestWatchFromNonZero,
		"DelayedWatchDelivery":                   storagetesting.RunTestDelayedWatchDelivery,
		"WatchContextCancel":                     storagetesting.RunTestWatchContextCancel,
		"WatcherTimeout":                         storagetesting.RunTestWatcherTimeout,
		"WatchDeleteEventObjectHaveLatestRV":     storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV,
		"WatchInitializationSignal":              storagetesting.RunTestWatchInitializationSignal,
		"SendInitialEventsBackwardCompatibility": storagetesting.RunSendInitialEventsBackwardCompatibility,
		"WatchSemantics":                         storagetesting.RunWatchSemantics,
		"WatchSemanticInitialEventsExtended":     storagetesting.RunWatchSemanticInitialEventsExtended,
		"WatchListMatchSingle":                   storagetesting.RunWatchListMatchSingle,
	} {
		t.Run(name, func(t *testing.T) { run(t.Context(), t, newTestStore(t)) })
	}
	t.Run("WatchFromZero", func(t *testing.T) {
		s := newTestStore(t)
		storagetesting.RunTestWatchFromZero(t.Context(), t, s, s.compact)
	})
	t.Run("WatchError", func(t *testing.T) {
		storagetesting.RunTestWatchError(t.Context(), t, newTestStore(t))
	})
	t.Run("WatchErrorEventIsBlockingFurtherEvent", func(t *testing.T) {
		storagetesting.RunWatchErrorIsBlockingFurtherEvents(t.Context(), t, newTestStore(t))
	})
	t.Run("WatchWithUnsafeDelete", func(t *testing.T) {
		unsafeDeletion(t, true)
		storagetesting.RunTestWatchWithUnsafeDelete(t.Context(), t, newTestStore(t), corruptObject())
	})
	t.Run("WatchSemanticsWithConcurrentDecode", func(t *testing.T) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ConcurrentWatchObjectDecode, true)
		storagetesting.RunWatchSemantics(t.Context(), t, newTestStore(t))
	})
	everySecond := func(c *Config, _ *storeConfig) { c.BookmarkInterval = time.Second }
	t.Run("ProgressNotify", func(t *testing.T) {
		s := newTestStore(t, everySecond)
		storagetesting.RunOptionalTestProgressNotify(t.Context(), t, s, s.increaseRV)
	})
	t.Run("WatchDispatchBookmarkEvents", func(t *testing.T) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(t.Context(), t, newTestStore(t, everySecond), true)
	})
	// Upstream runs this one on its watch cache only: etcd3 sends no bookmarks to clients.
	t.Run("WatchBookmarksWithCorrectResourceVersion", func(t *testing.T) {
		storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(t.Context(), t, newTestStore(t))
	})
}
