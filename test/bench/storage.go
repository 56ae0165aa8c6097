// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

const (
	storagePrefix = "/registry"
	podsPrefix    = "/pods"
)

// storageBenchmarks compare the storage engine with upstream's etcd3 store in
// front of a real etcd that syncs, as kube-apiserver builds it: same disk, same
// codec, the example pods of upstream's own benchmarks.
func storageBenchmarks() []benchmark {
	return []benchmark{
		{name: "storage_write_time", unit: "us", rounds: 3, prepare: storageWriteTime},
		{name: "storage_list_time", unit: "ms", rounds: 3, prepare: storageListTime},
		{name: "storage_watch_p99", unit: "ms", rounds: 9, prepare: storageWatchP99},
		{name: "storage_lone_write_time", unit: "us", rounds: 21, prepare: storageLoneWriteTime},
		{name: "storage_create_100k_vs_100", unit: "us", rounds: 21, prepare: storageCreate},
		{name: "storage_open_100k", unit: "ms", rounds: 7, prepare: storageOpen},
		{name: "storage_watchers_1000", unit: "ms", rounds: 101, prepare: storageWatchers},
		{name: "storage_watcher_memory", unit: "B", rounds: 3, prepare: storageWatcherMemory},
	}
}

// workplace is where stores and their files live, until it is closed.
type workplace struct {
	dir   string
	codec runtime.Codec
	// last in, first out
	closers []func(context.Context) error
}

func newWorkplace() (*workplace, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := errors.Join(example.AddToScheme(scheme), examplev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	klog.SetLogger(klog.Logger{}) // as upstream's benchmarks do: writes nothing
	dir, err := os.MkdirTemp("", "kommit-bench-")
	if err != nil {
		return nil, err
	}
	w := &workplace{dir: dir, codec: serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)}
	w.closers = append(w.closers, func(context.Context) error { return os.RemoveAll(dir) })
	return w, nil
}

func (w *workplace) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var err error
	for _, end := range slices.Backward(w.closers) {
		err = errors.Join(err, end(ctx))
	}
	return err
}

// prepared runs prepare in a new workplace that closes with the sides, or at
// once when prepare fails.
func prepared(ctx context.Context, prepare func(context.Context, *workplace) (sides, error)) (sides, error) {
	w, err := newWorkplace()
	if err != nil {
		return sides{}, err
	}
	s, err := prepare(ctx, w)
	if err != nil {
		return sides{}, errors.Join(err, w.close(context.WithoutCancel(ctx)))
	}
	s.close = w.close
	return s, nil
}

// uncompacted is how long all history stays, on both sides: as upstream's
// benchmarks have it, which list at revisions that were there at their start.
const uncompacted = 24 * time.Hour

// ours opens kommit's store on a file of that name.
func (w *workplace) ours(ctx context.Context, name string) (storage.Interface, func() error, error) {
	db, err := bolt.Open(ctx, bolt.Config{
		Path:    filepath.Join(w.dir, name),
		History: bolt.History{MaxAge: uncompacted, Interval: uncompacted, MaxEvents: math.MaxUint64},
	})
	if err != nil {
		return nil, nil, err
	}
	options, err := bolt.NewRESTOptionsGetter(db, w.codec, storagePrefix).GetRESTOptions(pods(), nil)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	s, destroy, err := decorate(options.Decorator, options.StorageConfig)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return s, func() error { destroy(); return db.Close() }, nil
}

// keptOurs is ours, closed with the workplace.
func (w *workplace) keptOurs(ctx context.Context, name string) (storage.Interface, error) {
	s, end, err := w.ours(ctx, name)
	if err == nil {
		w.closers = append(w.closers, func(context.Context) error { return end() })
	}
	return s, err
}

// etcd3 connects upstream's store to a server: bare with
// generic.UndecoratedStorage, behind the watch cache with
// genericregistry.StorageWithCacher.
func (w *workplace) etcd3(server *etcdServer, decorator generic.StorageDecorator) (storage.Interface, func(), error) {
	config := storagebackend.NewDefaultConfig(storagePrefix, w.codec)
	config.Transport.ServerList = []string{server.url}
	config.CompactionInterval = 0
	return decorate(decorator, config.ForResource(pods()))
}

// keptEtcd3 starts an etcd of its own and connects upstream's store to it.
func (w *workplace) keptEtcd3(ctx context.Context, decorator generic.StorageDecorator) (storage.Interface, error) {
	server, err := w.newEtcd(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	if err := server.start(ctx); err != nil {
		return nil, err
	}
	s, destroy, err := w.etcd3(server, decorator)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, func(context.Context) error { destroy(); return nil })
	return s, untilReady(ctx, s)
}

// both opens kommit's store and the peer's.
func (w *workplace) both(ctx context.Context, decorator generic.StorageDecorator) (ours, peer storage.Interface, err error) {
	if ours, err = w.keptOurs(ctx, "kommit.db"); err != nil {
		return nil, nil, err
	}
	peer, err = w.keptEtcd3(ctx, decorator)
	return ours, peer, err
}

func bare() generic.StorageDecorator        { return generic.UndecoratedStorage }
func behindCache() generic.StorageDecorator { return genericregistry.StorageWithCacher() }

func pods() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

func decorate(d generic.StorageDecorator, config *storagebackend.ConfigForResource) (storage.Interface, func(), error) {
	s, destroy, err := d(config, podsPrefix, podKeyOf, newPod, newPodList, podAttributes, nil, nil)
	return s, destroy, err
}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

func podKeyOf(obj runtime.Object) (string, error) {
	pod, ok := obj.(*example.Pod)
	if !ok {
		return "", fmt.Errorf("%T is no pod", obj)
	}
	return podsPrefix + "/" + pod.Namespace + "/" + pod.Name, nil
}

func podAttributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := obj.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("%T is no pod", obj)
	}
	return pod.Labels, fields.Set{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName}, nil
}

// untilReady waits for a watch cache to have its first list.
func untilReady(ctx context.Context, s storage.Interface) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := s.ReadinessCheck()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// fillers is how many write at a time where only the result counts.
const fillers = 64

// fill creates the pods.
func fill(ctx context.Context, s storage.Interface, data storagetesting.BenchmarkData) error {
	var group sync.WaitGroup
	failed := make([]error, fillers)
	for f := range fillers {
		group.Go(func() {
			for i := f; i < len(data.Pods) && failed[f] == nil; i += fillers {
				failed[f] = s.Create(ctx, data.PodKeys[i], data.Pods[i].DeepCopy(), nil, 0)
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}
