// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"context"
	"crypto/aes"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/client-go/tools/cache"
)

var widgets = schema.GroupResource{Group: "example.dev", Resource: "widgets"}

// newRegistry is a generic registry as the server builds it.
func newRegistry(t *testing.T, getter generic.RESTOptionsGetter) *genericregistry.Store {
	t.Helper()
	strategy := podStrategy{testScheme(), names.SimpleNameGenerator}
	r := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &example.Pod{} },
		NewListFunc:               func() runtime.Object { return &example.PodList{} },
		DefaultQualifiedResource:  widgets,
		SingularQualifiedResource: schema.GroupResource{Group: widgets.Group, Resource: "widget"},
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            rest.NewDefaultTableConvertor(widgets),
	}
	if err := r.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Destroy)
	return r
}

func TestGenericRegistry(t *testing.T) {
	db := openDB(t, Config{Path: filepath.Join(t.TempDir(), "kommit.db")})
	getter := NewRESTOptionsGetter(db, testCodec(), "/registry")
	if _, err := getter.GetRESTOptions(schema.GroupResource{}, nil); err != nil {
		t.Fatalf("without an example: %v", err)
	}
	r := newRegistry(t, getter)
	ctx := genericapirequest.WithNamespace(t.Context(), "ns")
	created, err := r.Create(ctx, pod("a"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(ctx, pod("a"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating it again: %v", err)
	}
	w, err := r.Watch(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	expect(t, w, watch.Added, created.(*example.Pod))
	list, err := r.List(ctx, nil)
	if err != nil || len(list.(*example.PodList).Items) != 1 {
		t.Errorf("List: %v, %v", list, err)
	}
	if _, _, err := r.Delete(ctx, "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Deleted {
		t.Errorf("got %v, want DELETED", e)
	}
	if err := r.ReadinessCheckFunc(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	// A second resource has a sequence of its own.
	other, err := db.newStore(podStoreConfig())
	if err != nil {
		t.Fatal(err)
	}
	if first := mustCreate(t, other, "a"); first.ResourceVersion != "2" {
		t.Errorf("first object of another resource at %s, want 2", first.ResourceVersion)
	}
}

// Two namespaces of which one's name begins with the other's never mix.
func TestNamespacesPartition(t *testing.T) {
	_, s := reopen(t, filepath.Join(t.TempDir(), "kommit.db"))
	namespaces := []string{"a", "a-b", "a.b", "ab"}
	for _, ns := range namespaces {
		if err := s.Create(t.Context(), "/pods/"+ns+"/x", &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "x"}}, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range namespaces {
		list := &example.PodList{}
		if err := s.GetList(t.Context(), "/pods/"+ns, storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Namespace != ns {
			t.Errorf("namespace %s lists %+v", ns, list.Items)
		}
	}
}

// Encrypted values are bound to their full key: one cannot be put in another's place.
func TestEncryption(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db := openDB(t, Config{Path: path})
	block, err := aes.NewCipher(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := aestransformer.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
	seen := &seenKeys{Transformer: gcm}
	r := newRegistry(t, &RESTOptionsGetter{
		DB: db, Codec: testCodec(), PathPrefix: "registry",
		Transformers: func(gr schema.GroupResource) value.Transformer {
			if gr == widgets {
				return seen
			}
			return nil
		},
	})
	ctx := genericapirequest.WithNamespace(t.Context(), "ns")
	p := pod("a")
	p.Labels = map[string]string{"marker": "plaintext-marker"}
	if _, err := r.Create(ctx, p, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(ctx, "a", &metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := "/registry/example.dev/widgets/ns/a"; seen.last != want {
		t.Errorf("authenticated data %q, want %q", seen.last, want)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, []byte("plaintext-marker")) {
		t.Error("the file holds plaintext")
	}
	// What cannot be decrypted is told apart from what is not there.
	seen.fail = true
	_, err = r.Get(ctx, "a", &metav1.GetOptions{})
	if err == nil || apierrors.IsNotFound(err) || !storage.IsCorruptObject(err) && !strings.Contains(err.Error(), "not transformable") {
		t.Errorf("Get of what cannot be decrypted: %v", err)
	}
}

type seenKeys struct {
	value.Transformer
	last string
	fail bool
}

func (s *seenKeys) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	s.last = string(dataCtx.AuthenticatedData())
	if s.fail {
		return nil, false, os.ErrInvalid
	}
	return s.Transformer.TransformFromStorage(ctx, data, dataCtx)
}

// F09, F22: a client-go reflector, which asks for a watch-list, syncs on an
// empty and on a filled resource, and goes on over a restart.
func TestReflector(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	synctest.Test(t, func(t *testing.T) {
		var current atomic.Pointer[genericregistry.Store]
		open := func() *DB {
			db, err := Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeChecked(t, db) })
			current.Store(newRegistry(t, NewRESTOptionsGetter(db, testCodec(), "/registry")))
			return db
		}
		db := open()
		ctx := genericapirequest.WithNamespace(t.Context(), "ns")
		seen := cache.NewStore(cache.MetaNamespaceKeyFunc)
		stop := make(chan struct{})
		source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return current.Load().ListPredicate(genericapirequest.WithNamespace(ctx, "ns"), storage.Everything, &metainternalversion.ListOptions{
					ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch, Limit: o.Limit, Continue: o.Continue,
				})
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				pred := storage.Everything
				pred.AllowWatchBookmarks = o.AllowWatchBookmarks
				return current.Load().WatchPredicate(genericapirequest.WithNamespace(ctx, "ns"), pred, o.ResourceVersion, o.SendInitialEvents)
			},
		}, nil)
		reflector := cache.NewReflectorWithOptions(source, &example.Pod{}, seen, cache.ReflectorOptions{})
		done := make(chan struct{})
		go func() { defer close(done); reflector.Run(stop) }()
		t.Cleanup(func() { close(stop); <-done })
		time.Sleep(time.Second)
		synctest.Wait()
		if rv := reflector.LastSyncResourceVersion(); rv != "1" {
			t.Fatalf("synced at %q on an empty resource, want 1", rv)
		}
		for _, name := range []string{"a", "b"} {
			if _, err := current.Load().Create(ctx, pod(name), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := len(seen.List()); got != 2 {
			t.Fatalf("%d objects, want 2", got)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		open()
		if _, _, err := current.Load().Delete(ctx, "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // past the reflector's backoff
		synctest.Wait()
		if got := seen.ListKeys(); len(got) != 1 || got[0] != "ns/b" {
			t.Errorf("after the restart: %v, want ns/b", got)
		}
	})
}
