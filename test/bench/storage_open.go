// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// storageOpen is the time from nothing to the first answered list, of 500 of
// 100,000 objects: opening the file, every page checked; for the peer, starting
// etcd on the same objects and connecting the etcd3 store.
func storageOpen(ctx context.Context) (sides, error) {
	return prepared(ctx, func(ctx context.Context, w *workplace) (sides, error) {
		const file = "kommit.db"
		server, err := w.newEtcd(ctx, "etcd")
		if err != nil {
			return sides{}, err
		}
		data := storagetesting.PrepareBenchmarkData(many/100, 100, 1)
		ours := func(ctx context.Context, use func(context.Context, storage.Interface) error) (float64, error) {
			began := time.Now()
			s, end, err := w.ours(ctx, file)
			if err != nil {
				return 0, err
			}
			if err := use(ctx, s); err != nil {
				return 0, err
			}
			return milliseconds(began), end()
		}
		peer := func(ctx context.Context, use func(context.Context, storage.Interface) error) (float64, error) {
			began := time.Now()
			if err := server.start(ctx); err != nil {
				return 0, err
			}
			s, destroy, err := w.etcd3(server, bare())
			if err != nil {
				return 0, err
			}
			if err := use(ctx, s); err != nil {
				return 0, err
			}
			took := milliseconds(began)
			destroy()
			return took, server.stop(ctx)
		}
		create := func(ctx context.Context, s storage.Interface) error { return fill(ctx, s, data) }
		if _, err := ours(ctx, create); err != nil {
			return sides{}, err
		}
		if _, err := peer(ctx, create); err != nil {
			return sides{}, err
		}
		return sides{
			ours: func(ctx context.Context, _ int) (float64, error) { return ours(ctx, firstPage) },
			peer: func(ctx context.Context, _ int) (float64, error) { return peer(ctx, firstPage) },
		}, nil
	})
}

func firstPage(ctx context.Context, s storage.Interface) error {
	const limit = 500
	predicate := storage.Everything
	predicate.Limit = limit
	var list example.PodList
	if err := s.GetList(ctx, podsPrefix+"/", storage.ListOptions{Recursive: true, Predicate: predicate}, &list); err != nil {
		return err
	}
	if len(list.Items) != limit {
		return fmt.Errorf("the first page has %d of %d pods", len(list.Items), limit)
	}
	return nil
}
