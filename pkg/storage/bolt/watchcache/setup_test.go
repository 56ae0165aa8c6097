// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watchcache tests the storage behind upstream's watch cache. The server
// has none on top, but whoever puts one there must find a storage that serves it:
// with progress on request, and a history in which the cache's own consistency
// checker finds what the cache has.
//
// It is a package of its own because the cache takes its switches from the process.
package watchcache

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"
	"k8s.io/apiserver/pkg/storage/feature"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

func TestMain(m *testing.M) {
	// As KUBE_WATCHCACHE_CONSISTENCY_CHECKER=true does: a difference is fatal.
	consistency.PanicOnCacheInconsistency = true
	feature.DefaultFeatureSupportChecker = progressOnRequest{feature.DefaultFeatureSupportChecker}
	os.Exit(m.Run())
}

// progressOnRequest says what the cache only asks clients of etcd.
type progressOnRequest struct{ feature.FeatureSupportChecker }

func (p progressOnRequest) Supports(f storage.Feature) bool {
	return f == storage.RequestWatchProgress || p.FeatureSupportChecker.Supports(f)
}

var pods = schema.GroupResource{Resource: "pods"}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

func newCodec() runtime.Codec {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	return apitesting.TestCodec(serializer.NewCodecFactory(scheme), examplev1.SchemeGroupVersion)
}

func podAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := obj.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not a pod", obj)
	}
	return pod.Labels, fields.Set{
		"metadata.name":      pod.Name,
		"metadata.namespace": pod.Namespace,
		"spec.nodeName":      pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"status.phase":       string(pod.Status.Phase),
	}, nil
}

type options struct {
	codec        runtime.Codec
	transformer  value.Transformer
	keyFunc      func(runtime.Object) (string, error)
	indexerFuncs storage.IndexerFuncs
	indexers     cache.Indexers
	misnamed     bool
}

// misnamed is for the few tests that store an object under another key than its
// name makes, or at a key outside a namespace, which a cache cannot follow:
// consistency is not checked.
func misnamed(o *options) { o.misnamed = true }

// indexed has the indexes that the suite expects of pods.
func indexed(o *options) {
	nodeName := func(obj runtime.Object) string { return obj.(*example.Pod).Spec.NodeName }
	o.indexerFuncs = storage.IndexerFuncs{"spec.nodeName": nodeName}
	o.indexers = cache.Indexers{
		"f:spec.nodeName":      func(obj any) ([]string, error) { return []string{nodeName(obj.(*example.Pod))}, nil },
		"f:metadata.namespace": func(obj any) ([]string, error) { return []string{obj.(*example.Pod).Namespace}, nil },
	}
}

func clusterScoped(o *options) {
	o.keyFunc = func(obj runtime.Object) (string, error) { return storage.NoNamespaceKeyFunc("/pods/", obj) }
}

// cached is the storage behind a watch cache.
type cached struct {
	storage.Interface // the cache, in front of store
	store             *observed

	db      *bolt.DB
	beside  storage.Interface // same resource, another prefix
	options options
	stop    func()
	extra   int
}

func newCached(t *testing.T, change ...func(*options)) *cached {
	t.Helper()
	o := options{
		codec:   newCodec(),
		keyFunc: func(obj runtime.Object) (string, error) { return storage.NamespaceKeyFunc("/pods/", obj) },
	}
	for _, f := range change {
		f(&o)
	}
	consistency.CheckPeriod = 50 * time.Millisecond
	if o.misnamed {
		consistency.CheckPeriod = time.Hour
	}
	db, err := bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "kommit.db")})
	if err != nil {
		t.Fatal(err)
	}
	c := &cached{db: db, options: o}
	c.beside = c.open(t, "/beside")
	c.start(t)
	t.Cleanup(func() {
		if !o.misnamed {
			c.checkConsistency(t)
		}
		c.stop()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// open makes the store as a generic registry does.
func (c *cached) open(t *testing.T, prefix string) storage.Interface {
	t.Helper()
	getter := &bolt.RESTOptionsGetter{DB: c.db, Codec: c.options.codec, PathPrefix: "/registry"}
	if c.options.transformer != nil {
		getter.Transformers = func(schema.GroupResource) value.Transformer { return c.options.transformer }
	}
	o, err := getter.GetRESTOptions(pods, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, destroy, err := o.Decorator(o.StorageConfig, prefix, c.options.keyFunc, newPod, newPodList, podAttrs, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	return s
}

// start puts a new cache in front of the store, which is opened anew: a cache
// enables its size estimation, which can be done once.
func (c *cached) start(t *testing.T) {
	t.Helper()
	c.store = &observed{Interface: c.open(t, "/pods")}
	front, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             c.store,
		Versioner:           c.store.Versioner(),
		GroupResource:       pods,
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      "/pods/",
		KeyFunc:             c.options.keyFunc,
		GetAttrsFunc:        podAttrs,
		NewFunc:             newPod,
		NewListFunc:         newPodList,
		IndexerFuncs:        c.options.indexerFuncs,
		Indexers:            &c.options.indexers,
		Codec:               c.options.codec,
		Clock:               eager{clock.RealClock{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := front.Wait(context.Background()); err != nil { // also in a cleanup
		t.Fatal(err)
	}
	delegator := cacher.NewCacheDelegator(front, c.store)
	c.Interface = delegator
	c.stop = sync.OnceFunc(func() {
		delegator.Stop()
		front.Stop()
	})
}

// checkConsistency compares cache and store once they are at the same revision.
func (c *cached) checkConsistency(t *testing.T) {
	t.Helper()
	c.increaseRV(context.Background(), t) // a consistent read of it brings the cache up to date
	if err := c.GetList(context.Background(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, newPodList()); err != nil {
		t.Errorf("a consistent list at the end: %v", err)
		return
	}
	front := &frontOnly{c.Interface}
	digest, err := consistency.NewChecker("/pods/", pods, newPodList, front, c.store).CalculateDigests(context.Background())
	if err != nil {
		t.Errorf("comparing cache and store: %v", err)
	} else if digest.CacheDigest != digest.EtcdDigest {
		t.Errorf("cache and store differ at %s: %+v", digest.ResourceVersion, digest.DiffDetail)
	}
}

// frontOnly is what the consistency checker wants of a cache.
type frontOnly struct{ storage.Interface }

func (*frontOnly) Ready() bool         { return true }
func (*frontOnly) MarkConsistent(bool) {}

// increaseRV uses up one revision of the resource, with no event under /pods.
func (c *cached) increaseRV(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	c.extra++
	name, out := fmt.Sprint(c.extra), &example.Pod{}
	if err := c.beside.Create(ctx, "/beside/"+name, &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, out, 0); err != nil {
		t.Fatal(err)
	}
	rev, err := c.beside.Versioner().ObjectResourceVersion(out)
	if err != nil {
		t.Fatal(err)
	}
	return int64(rev)
}

// compact compacts the store and waits until the cache has followed. It uses up a
// revision, as etcd's compaction does.
func (c *cached) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	rev, err := c.store.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.db.Compact(ctx, pods, rev); err != nil {
		t.Fatal(err)
	}
	// When the cache asks for the second time from here, it has done what the
	// answer to the first one means.
	for asked := range 2 {
		select {
		case <-c.store.askedForCompaction():
		case <-ctx.Done():
			t.Fatalf("the cache asked %d times for the compacted revision, want 2", asked)
		}
	}
	c.increaseRV(ctx, t)
}

// compactAndRestart also drops the cache's own history, which only a new cache does.
func (c *cached) compactAndRestart(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	c.compact(ctx, t, resourceVersion)
	c.restart(t)
}

func (c *cached) restart(t *testing.T) {
	t.Helper()
	c.stop()
	c.start(t)
}

// observed is the store as the cache sees it.
type observed struct {
	storage.Interface
	passedOn atomic.Int64 // lists of TestList that the store had to answer
	asked    atomic.Pointer[chan struct{}]
}

// GetList implements storage.Interface.
func (o *observed) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	err := o.Interface.GetList(ctx, key, opts, list)
	if err == nil && ctx.Value(storagetesting.RecorderContextKey) != nil {
		o.passedOn.Add(1)
	}
	return err
}

// CompactRevision implements storage.Interface.
func (o *observed) CompactRevision() int64 {
	if asked := o.asked.Swap(nil); asked != nil {
		defer close(*asked)
	}
	return o.Interface.CompactRevision()
}

// askedForCompaction is closed at the next call of CompactRevision.
func (o *observed) askedForCompaction() <-chan struct{} {
	c := make(chan struct{})
	o.asked.Store(&c)
	return c
}

// eager lets the cache look for compactions often: it does so every 15 seconds,
// and nothing else in it waits for that long.
type eager struct{ clock.RealClock }

const compactionPoll = 15 * time.Second

func (e eager) NewTimer(d time.Duration) clock.Timer {
	return eagerTimer{e.RealClock.NewTimer(sooner(d))}
}

type eagerTimer struct{ clock.Timer }

func (e eagerTimer) Reset(d time.Duration) bool { return e.Timer.Reset(sooner(d)) }

func sooner(d time.Duration) time.Duration {
	if d == compactionPoll {
		return 10 * time.Millisecond
	}
	return d
}

// fresh waits after each create until the cache has it, as the tests of initial
// events need.
type fresh struct{ *cached }

func (f fresh) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := f.cached.Create(ctx, key, obj, out, ttl); err != nil {
		return err
	}
	return f.Get(ctx, key, storage.GetOptions{ResourceVersion: out.(*example.Pod).ResourceVersion}, &example.Pod{})
}
