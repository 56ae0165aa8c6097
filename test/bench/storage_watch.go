// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/utils/clock"
)

// storageWatchP99 is the time from the decision of an update until a watcher has
// it, at the 99th percentile of 2,000 updates by 10 writers, measured with
// upstream's tracker.
func storageWatchP99(ctx context.Context) (sides, error) {
	return prepared(ctx, func(ctx context.Context, w *workplace) (sides, error) {
		ours, peer, err := w.both(ctx, bare())
		if err != nil {
			return sides{}, err
		}
		data := storagetesting.PrepareBenchmarkData(10, 10, 10)
		for _, s := range []storage.Interface{ours, peer} {
			if err := fill(ctx, s, data); err != nil {
				return sides{}, err
			}
		}
		measure := func(s storage.Interface) func(context.Context, int) (float64, error) {
			return func(ctx context.Context, round int) (float64, error) { return deliveryP99(ctx, s, data, round) }
		}
		return sides{ours: measure(ours), peer: measure(peer)}, nil
	})
}

func deliveryP99(ctx context.Context, s storage.Interface, data storagetesting.BenchmarkData, round int) (float64, error) {
	const writers, updates = 10, 200
	w, err := watchPods(ctx, s)
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	tracker := storagetesting.NewWatchLatencyTracker(clock.RealClock{})
	var group sync.WaitGroup
	failed := make([]error, writers)
	for i := range writers {
		group.Go(func() {
			for u := 0; u < updates && failed[i] == nil; u++ {
				key := data.PodKeys[(u*writers+i)%len(data.PodKeys)]
				failed[i] = change(ctx, s, key, fmt.Sprintf("%d-%d", round, u), tracker.RecordWrite)
			}
		})
	}
	for range writers * updates {
		event, ok := <-w.ResultChan()
		if !ok || event.Type != watch.Modified {
			group.Wait()
			return 0, errors.Join(fmt.Errorf("the watch sent %v", event), errors.Join(failed...))
		}
		tracker.HandleEvent(event.Object)
	}
	group.Wait()
	return float64(tracker.GetP99Latency()) / float64(time.Millisecond), errors.Join(failed...)
}

// change updates one pod, so that it is another one.
func change(ctx context.Context, s storage.Interface, key, to string, decided func(any)) error {
	update := func(current apiruntime.Object, _ storage.ResponseMeta) (apiruntime.Object, *uint64, error) {
		pod, ok := current.(*example.Pod)
		if !ok {
			return nil, nil, fmt.Errorf("%T is no pod", current)
		}
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations["bench"] = to
		if decided != nil {
			decided(pod)
		}
		return pod, nil, nil
	}
	return s.GuaranteedUpdate(ctx, key, &example.Pod{}, false, nil, update, nil)
}

// watchPods watches all pods from what is there now.
func watchPods(ctx context.Context, s storage.Interface) (watch.Interface, error) {
	rev, err := s.GetCurrentResourceVersion(ctx)
	if err != nil {
		return nil, err
	}
	return s.Watch(ctx, podsPrefix+"/", storage.ListOptions{
		Recursive: true, ResourceVersion: strconv.FormatUint(rev, 10), Predicate: storage.Everything,
	})
}

const watchers = 1000

// storageWatchers is the time from the call of an update until the last of 1,000
// watchers, each read by a goroutine, has it. The peer is the etcd3 store behind
// upstream's watch cache.
func storageWatchers(ctx context.Context) (sides, error) {
	return prepared(ctx, func(ctx context.Context, w *workplace) (sides, error) {
		ours, peer, err := w.both(ctx, behindCache())
		if err != nil {
			return sides{}, err
		}
		data := storagetesting.PrepareBenchmarkData(1, 1, 1)
		measure := func(s storage.Interface) (func(context.Context, int) (float64, error), error) {
			if err := fill(ctx, s, data); err != nil {
				return nil, err
			}
			audience, err := w.audience(ctx, s)
			return func(ctx context.Context, round int) (float64, error) {
				audience.left.Store(watchers)
				began := time.Now()
				if err := change(ctx, s, data.PodKeys[0], strconv.Itoa(round), nil); err != nil {
					return 0, err
				}
				select {
				case <-audience.all:
					return milliseconds(began), nil
				case err := <-audience.failed:
					return 0, err
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}, err
		}
		var s sides
		if s.ours, err = measure(ours); err != nil {
			return sides{}, err
		}
		s.peer, err = measure(peer)
		return s, err
	})
}

// audience is many watchers of one store.
type audience struct {
	left   atomic.Int64 // how many do not have the event yet
	all    chan struct{}
	failed chan error
}

func (w *workplace) audience(ctx context.Context, s storage.Interface) (*audience, error) {
	c := &audience{all: make(chan struct{}, 1), failed: make(chan error, watchers)}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	w.closers = append(w.closers, func(context.Context) error { cancel(); group.Wait(); return nil })
	for range watchers {
		one, err := watchPods(ctx, s)
		if err != nil {
			return nil, err
		}
		group.Go(func() {
			for event := range one.ResultChan() {
				if event.Type != watch.Modified {
					c.failed <- fmt.Errorf("a watch sent %v", event)
					return
				}
				if c.left.Add(-1) == 0 {
					c.all <- struct{}{}
				}
			}
		})
	}
	return c, nil
}

// storageWatcherMemory is what an idle watcher holds of heap and stacks, with the
// same peer.
func storageWatcherMemory(ctx context.Context) (sides, error) {
	return prepared(ctx, func(ctx context.Context, w *workplace) (sides, error) {
		ours, peer, err := w.both(ctx, behindCache())
		if err != nil {
			return sides{}, err
		}
		data := storagetesting.PrepareBenchmarkData(1, 1, 1)
		measure := func(s storage.Interface) func(context.Context, int) (float64, error) {
			return func(ctx context.Context, round int) (float64, error) {
				if round == 0 {
					if err := fill(ctx, s, data); err != nil {
						return 0, err
					}
				}
				return watcherMemory(ctx, s, data, round)
			}
		}
		return sides{ours: measure(ours), peer: measure(peer)}, nil
	})
}

func watcherMemory(ctx context.Context, s storage.Interface, data storagetesting.BenchmarkData, round int) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	var all []watch.Interface
	defer func() {
		cancel()
		for _, w := range all {
			for range w.ResultChan() { // until it is closed
			}
		}
	}()
	before := inUse()
	for range watchers {
		w, err := watchPods(ctx, s)
		if err != nil {
			return 0, err
		}
		all = append(all, w)
	}
	// Idle, but not new: each has had one event.
	if err := change(ctx, s, data.PodKeys[0], strconv.Itoa(round), nil); err != nil {
		return 0, err
	}
	for _, w := range all {
		if event := <-w.ResultChan(); event.Type != watch.Modified {
			return 0, fmt.Errorf("a watch sent %v", event)
		}
	}
	return (inUse() - before) / watchers, nil
}

// inUse is the size of heap and stacks after garbage is collected. Stacks shrink
// by half at each collection.
func inUse() float64 {
	for range 4 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
