// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// guard ends what would hang when the server is wrong. Nothing is measured by it.
const guard = 5 * time.Minute

// contractServer is a server of this package on a file of its own, spoken to
// over HTTPS as "admin".
type contractServer struct {
	db     *bolt.DB
	config *rest.Config
	client dynamic.Interface
	http   *http.Client
	// stop shuts the server down, waits and closes the file.
	stop func()
}

// startContractServer serves a new file.
func startContractServer(t *testing.T) *contractServer {
	t.Helper()
	return serveContract(t, bolt.Config{Path: filepath.Join(t.TempDir(), "kommit.db")}, t.TempDir())
}

// serveContract serves storage.Path, with the certificate in certificates, which
// is made when absent.
func serveContract(t *testing.T, storage bolt.Config, certificates string) *contractServer {
	t.Helper()
	options := newTestOptions(storage.Path)
	options.Recommended.SecureServing.ServerCert.CertDirectory = certificates
	config := testConfig(t, options)
	// What a shutdown waits for an open request: as good as for ever.
	config.Generic.RequestTimeout = 10 * guard

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	db, err := bolt.Open(context.WithoutCancel(ctx), storage)
	if err != nil {
		t.Fatal(err)
	}
	config.Storage = &bolt.RESTOptionsGetter{DB: db, Codec: config.StorageCodec(), ObjectCounts: config.Generic.StorageObjectCountTracker}
	config.Windows = newOpenWindows(nil)
	started := make(chan struct{})
	config.PostStart = []PostStartHook{{"contract-started", func(genericapiserver.PostStartHookContext) error {
		close(started)
		return nil
	}}}
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &contractServer{db: db}
	s.config = (&testServer{config: rest.AnonymousClientConfig(server.LoopbackClientConfig)}).configOf("admin")
	s.config.QPS = -1
	if s.client, err = dynamic.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	if s.http, err = rest.HTTPClientFor(s.config); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.PrepareRun().RunWithContext(ctx) }()
	s.stop = sync.OnceFunc(func() {
		s.http.CloseIdleConnections()
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	<-started
	return s
}

// testKind is one kind of the group.
type testKind struct {
	resource, kind string
	spec           map[string]any
	// changed is spec after a change that the kind allows; nil: it allows none.
	changed map[string]any
}

func testKinds() []testKind {
	return []testKind{
		{
			resource: "gitproviders", kind: "GitProvider",
			spec:    map[string]any{"url": "https://git.example.com/team/config"},
			changed: map[string]any{"url": "https://git.example.com/team/other"},
		},
		{
			resource: "gittargets", kind: "GitTarget",
			spec:    map[string]any{"gitProviderRef": map[string]any{"name": "origin"}, "branch": "main"},
			changed: map[string]any{"gitProviderRef": map[string]any{"name": "origin"}, "branch": "main", "suspend": true},
		},
		{
			resource: "watchrules", kind: "WatchRule",
			spec: map[string]any{
				"gitTargetRef": map[string]any{"name": "prod"},
				"resources":    []any{map[string]any{"resources": []any{"configmaps"}}},
			},
			changed: map[string]any{
				"gitTargetRef": map[string]any{"name": "prod"},
				"resources":    []any{map[string]any{"resources": []any{"services"}}},
			},
		},
		{
			// Last, as it needs a GitTarget, which the others want to be without.
			resource: "commitrequests", kind: "CommitRequest",
			spec: map[string]any{"gitTargetRef": map[string]any{"name": "prod"}, "message": "Save"},
		},
	}
}

// testNamespaces are those that have a target to save to. Each name is a prefix
// of another, on both sides of the path separator (F21).
var testNamespaces = []string{"a", "ab", "a-b"}

// resourceClient is one kind on one server.
type resourceClient struct {
	testKind

	server *contractServer
}

// eachKind runs test for each kind, one after the other, on a server where there
// is nothing of that kind yet.
func eachKind(t *testing.T, s *contractServer, test func(*testing.T, *resourceClient)) {
	t.Helper()
	for _, kind := range testKinds() {
		t.Run(kind.resource, func(t *testing.T) {
			if kind.resource == "commitrequests" {
				s.createTargets(t)
			}
			test(t, &resourceClient{testKind: kind, server: s})
		})
	}
}

// createTargets creates the target that CommitRequests name, where it is missing.
func (s *contractServer) createTargets(t *testing.T) {
	t.Helper()
	targets := &resourceClient{testKind: testKinds()[1], server: s}
	for _, namespace := range testNamespaces {
		if _, err := targets.in(namespace).Get(t.Context(), "prod", metav1.GetOptions{}); err != nil {
			targets.create(t, targets.object(namespace, "prod"))
		}
	}
}

func (r *resourceClient) gvr() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(r.resource)
}

// in is the client of a namespace, "" for all.
func (r *resourceClient) in(namespace string) dynamic.ResourceInterface {
	return r.server.client.Resource(r.gvr()).Namespace(namespace)
}

// path is where the objects of a namespace are, "" for all.
func (r *resourceClient) path(namespace string) string {
	if namespace == "" {
		return "/apis/kommit.dev/v1alpha1/" + r.resource
	}
	return "/apis/kommit.dev/v1alpha1/namespaces/" + namespace + "/" + r.resource
}

func (r *resourceClient) object(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kommit.dev/v1alpha1",
		"kind":       r.kind,
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec":       runtime.DeepCopyJSON(r.spec),
	}}
}

func (r *resourceClient) labelled(namespace, name string, labels map[string]string) *unstructured.Unstructured {
	obj := r.object(namespace, name)
	obj.SetLabels(labels)
	return obj
}

func (r *resourceClient) create(t *testing.T, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := r.in(obj.GetNamespace()).Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// createMany creates the objects prefix-0 up to prefix-(n-1), several at a time.
func (r *resourceClient) createMany(t *testing.T, namespace, prefix string, n int) {
	t.Helper()
	var workers sync.WaitGroup
	names := make(chan string)
	for range 8 {
		workers.Go(func() {
			for name := range names {
				if _, err := r.in(namespace).Create(t.Context(), r.object(namespace, name), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		names <- fmt.Sprintf("%s-%d", prefix, i)
	}
	close(names)
	workers.Wait()
}

// label gives an object the label touched and returns it.
func (r *resourceClient) label(t *testing.T, namespace, name, value string) *unstructured.Unstructured {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"touched":%q}}}`, value)
	patched, err := r.in(namespace).Patch(t.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return patched
}

func (r *resourceClient) delete(t *testing.T, namespace, name string) {
	t.Helper()
	if err := r.in(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (r *resourceClient) list(t *testing.T, namespace string, options metav1.ListOptions) *unstructured.UnstructuredList {
	t.Helper()
	list, err := r.in(namespace).List(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// compact forgets the history of the resource up to a resourceVersion.
func (r *resourceClient) compact(t *testing.T, resourceVersion string) {
	t.Helper()
	if err := r.server.db.Compact(t.Context(), r.gvr().GroupResource(), revision(t, resourceVersion)); err != nil {
		t.Fatal(err)
	}
}

func revision(t *testing.T, resourceVersion string) uint64 {
	t.Helper()
	rev, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		t.Fatalf("resourceVersion %q: %v", resourceVersion, err)
	}
	return rev
}

// versions maps the namespace/name of each object to its resourceVersion.
func versions(list *unstructured.UnstructuredList) map[string]string {
	all := make(map[string]string, len(list.Items))
	for _, item := range list.Items {
		all[item.GetNamespace()+"/"+item.GetName()] = item.GetResourceVersion()
	}
	return all
}
