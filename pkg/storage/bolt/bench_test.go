// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// To profile; what they compare with is in test/bench. These two are upstream's own.

func BenchmarkStoreWriteThroughput(b *testing.B) {
	data := storagetesting.PrepareBenchmarkData(10, 300, 100)
	storagetesting.RunBenchmarkWriteThroughput(b.Context(), b, newTestStore(b), data, false, nil)
}

func BenchmarkStoreList(b *testing.B) {
	data, s := storagetesting.PrepareBenchmarkData(50, 110, 500), newTestStore(b)
	if err := storagetesting.PrecreateBenchmarkPods(b.Context(), s, data); err != nil {
		b.Fatal(err)
	}
	storagetesting.RunBenchmarkStoreList(b.Context(), b, s, data, false)
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
