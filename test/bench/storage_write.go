// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// loneWrites are made in a round.
const loneWrites = 100

// storageLoneWriteTime is the time of a create by the only writer. The peer is
// what it cannot beat: a bare bbolt put of the same bytes under the same key in a
// transaction of its own, synced.
func storageLoneWriteTime(ctx context.Context) (sides, error) {
	return prepared(ctx, func(ctx context.Context, w *workplace) (sides, error) {
		ours, err := w.keptOurs(ctx, "kommit.db")
		if err != nil {
			return sides{}, err
		}
		file, err := bbolt.Open(filepath.Join(w.dir, "bare.db"), 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
		if err != nil {
			return sides{}, err
		}
		w.closers = append(w.closers, func(context.Context) error { return file.Close() })
		bucket := []byte("objects")
		if err := file.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket(bucket)
			return err
		}); err != nil {
			return sides{}, err
		}
		put := func(key string, value []byte) error {
			return file.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put([]byte(key), value) })
		}
		return sides{
			ours: func(ctx context.Context, _ int) (float64, error) {
				return createTime(ctx, ours, storagetesting.PrepareBenchmarkData(1, loneWrites, 1))
			},
			peer: func(context.Context, int) (float64, error) {
				data := storagetesting.PrepareBenchmarkData(1, loneWrites, 1)
				value, err := apiruntime.Encode(w.codec, data.Pods[0])
				if err != nil {
					return 0, err
				}
				began := time.Now()
				for _, key := range data.PodKeys {
					if err := put(storagePrefix+key, value); err != nil {
						return 0, err
					}
				}
				return perWrite(began), nil
			},
		}, nil
	})
}

// createTime creates the pods one after the other.
func createTime(ctx context.Context, s storage.Interface, data storagetesting.BenchmarkData) (float64, error) {
	began := time.Now()
	for i, key := range data.PodKeys {
		if err := s.Create(ctx, key, data.Pods[i], &example.Pod{}, 0); err != nil {
			return 0, err
		}
	}
	return perWrite(began), nil
}

// perWrite is the mean time in microseconds of loneWrites since then.
func perWrite(began time.Time) float64 {
	return float64(time.Since(began)) / float64(time.Microsecond) / loneWrites
}

// storageCreate is the time of a create by the only writer where 100,000 objects
// are stored already. The peer is ours with 100.
func storageCreate(ctx context.Context) (sides, error) {
	return prepared(ctx, func(ctx context.Context, w *workplace) (sides, error) {
		measure := func(name string, stored int) (func(context.Context, int) (float64, error), error) {
			s, err := w.keptOurs(ctx, name)
			if err != nil {
				return nil, err
			}
			if err := fill(ctx, s, storagetesting.PrepareBenchmarkData(stored/100, 100, 1)); err != nil {
				return nil, err
			}
			return func(ctx context.Context, _ int) (float64, error) {
				data := storagetesting.PrepareBenchmarkData(loneWrites, 1, 1)
				took, err := createTime(ctx, s, data)
				if err != nil {
					return 0, err
				}
				for _, key := range data.PodKeys { // as many as before
					if err := s.Delete(ctx, key, &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
						return 0, err
					}
				}
				return took, nil
			}, nil
		}
		var s sides
		var err error
		if s.ours, err = measure("large.db", many); err != nil {
			return sides{}, err
		}
		s.peer, err = measure("small.db", 100)
		return s, err
	})
}

// many is the number of objects of a store that is called large.
const many = 100_000
