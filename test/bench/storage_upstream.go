// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// How often each of upstream's cases is done in a round. Time would not do: where
// one operation takes long, there would be too few for all the goroutines.
const (
	writeOperations = 2000
	listOperations  = 8
)

// storageWriteTime is upstream's RunBenchmarkWriteThroughput: 25 writers per
// processor delete and create, or update, 3,000 pods, alone and beside watchers,
// lists of three kinds and watch-lists. Of its twelve cases the time for one
// write counts, and of these times the mean.
func storageWriteTime(ctx context.Context) (sides, error) {
	// Six of the cases write twice each time.
	const writes = 6*2 + 6*1
	return prepared(ctx, func(ctx context.Context, w *workplace) (sides, error) {
		ours, peer, err := w.both(ctx, bare())
		if err != nil {
			return sides{}, err
		}
		data := storagetesting.PrepareBenchmarkData(10, 300, 100)
		measure := func(s storage.Interface) func(context.Context, int) (float64, error) {
			return func(ctx context.Context, _ int) (float64, error) {
				all, err := upstream(ctx, writeOperations, func(ctx context.Context, b *testing.B) {
					storagetesting.RunBenchmarkWriteThroughput(ctx, b, s, data, false, nil)
				})
				return float64(all) / float64(time.Microsecond) / writes, err
			}
		}
		return sides{ours: measure(ours), peer: measure(peer)}, nil
	})
}

// storageListTime is upstream's RunBenchmarkStoreList on 5,500 pods, a
// twentieth of its own. Of its fifteen cases (all, those of a node, those of a namespace; whole
// and in pages; newest, exact and not older than a revision) each is done once:
// the figure is the sum.
func storageListTime(ctx context.Context) (sides, error) {
	return prepared(ctx, func(ctx context.Context, w *workplace) (sides, error) {
		ours, peer, err := w.both(ctx, bare())
		if err != nil {
			return sides{}, err
		}
		data := storagetesting.PrepareBenchmarkData(50, 110, 500)
		for _, s := range []storage.Interface{ours, peer} {
			if err := fill(ctx, s, data); err != nil {
				return sides{}, err
			}
		}
		measure := func(s storage.Interface) func(context.Context, int) (float64, error) {
			return func(ctx context.Context, _ int) (float64, error) {
				all, err := upstream(ctx, listOperations, func(ctx context.Context, b *testing.B) { storagetesting.RunBenchmarkStoreList(ctx, b, s, data, false) })
				return float64(all) / float64(time.Millisecond), err
			}
		}
		return sides{ours: measure(ours), peer: measure(peer)}, nil
	})
}

// upstream runs a benchmark that has cases, each as often as operations says, and
// returns the sum of their times per operation. They panic when their context
// ends, so theirs does not.
func upstream(ctx context.Context, operations int, f func(context.Context, *testing.B)) (time.Duration, error) {
	testing.Init()
	if err := flag.Set("test.benchtime", fmt.Sprintf("%dx", operations)); err != nil {
		return 0, err
	}
	r := testing.Benchmark(func(b *testing.B) { f(context.WithoutCancel(ctx), b) })
	if r.N == 0 {
		return 0, errors.New("a benchmark of upstream failed")
	}
	return r.T, ctx.Err()
}
