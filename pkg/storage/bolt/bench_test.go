// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"fmt"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// Upstream's own, with the names and the smallest dimensions of etcd3's.

func BenchmarkStoreWriteThroughput(b *testing.B) {
	data := storagetesting.PrepareBenchmarkData(50, 3_000, 5_000)
	storagetesting.RunBenchmarkWriteThroughput(b.Context(), b, newTestStore(b), data, false, nil)
}

func BenchmarkStoreList(b *testing.B) {
	data, s := storagetesting.PrepareBenchmarkData(100, 1_100, 1000), newTestStore(b)
	if err := storagetesting.PrecreateBenchmarkPods(b.Context(), s, data); err != nil {
		b.Fatal(err)
	}
	storagetesting.RunBenchmarkStoreList(b.Context(), b, s, data, false)
}

// BenchmarkLoneWrite has one writer, BenchmarkBarePut is what it cannot beat:
// one put of the same size in a transaction of its own.

func BenchmarkLoneWrite(b *testing.B) {
	s := newTestStore(b)
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprint(i)
		if err := s.Create(b.Context(), podKey(name), pod(name), nil, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBarePut(b *testing.B) {
	file, err := openBolt(filepath.Join(b.TempDir(), "bare.db"), &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	value := make([]byte, 500)
	for i := 0; b.Loop(); i++ {
		if err := file.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			return bucket.Put([]byte(podKey(fmt.Sprint(i))), value)
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkThousandWatchers measures one event until the last watcher has it.
func BenchmarkThousandWatchers(b *testing.B) {
	s := newTestStore(b)
	mustCreate(b, s, "a")
	var watches []watch.Interface
	for range 1000 {
		watches = append(watches, startWatch(b, s, storage.ListOptions{ResourceVersion: "2"}))
	}
	for i := 0; b.Loop(); i++ {
		mustLabel(b, s, "a", fmt.Sprint(i))
		for _, w := range watches {
			if e := <-w.ResultChan(); e.Type != watch.Modified {
				b.Fatalf("got %v", e)
			}
		}
	}
}
