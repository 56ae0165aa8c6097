// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// wire is what leads clients to the server that runs; between two servers it
// leads nowhere.
type wire struct {
	address atomic.Pointer[string]
}

func (w *wire) cut() { w.address.Store(nil) }

func (w *wire) connect(t *testing.T, s *contractServer) {
	t.Helper()
	host, err := url.Parse(s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	w.address.Store(&host.Host)
}

func (w *wire) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	address := w.address.Load()
	if address == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return (&net.Dialer{}).DialContext(ctx, network, *address)
}

// config is of a client that stays while servers come and go.
func (w *wire) config(certificates string) *rest.Config {
	config := (&testServer{config: &rest.Config{
		Host:            "https://localhost",
		Dial:            w.dial,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(certificates, "apiserver.crt")},
	}}).configOf("admin")
	config.QPS = -1
	return config
}

// survivors are the informers of a kind that outlive a server.
type survivors struct {
	*resourceClient

	before    *unstructured.UnstructuredList
	informers map[string]informed
	// What each of them may be told of the writes that it did not watch.
	resumed, relisted []string
}

// F22: after a restart on the same file everything is as it was, and informers
// that ran go on: they miss nothing and invent nothing, be it that their watch
// resumes or that its history is gone and they list again.
func TestInformersGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	for name, compacted := range map[string]bool{"with the history": false, "without the history": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storage := bolt.Config{Path: filepath.Join(t.TempDir(), "kommit.db")}
			certificates := t.TempDir()
			first := serveContract(t, storage, certificates)
			var clients wire
			clients.connect(t, first)

			var all []survivors
			first.createTargets(t)
			eachKind(t, first, func(_ *testing.T, r *resourceClient) {
				s := survivors{resourceClient: r, informers: map[string]informed{}}
				for _, name := range []string{"stays", "changes", "goes", "replaced"} {
					r.create(t, r.object("a", name))
				}
				there := len(r.list(t, "a", metav1.ListOptions{}).Items)
				for name, newInformer := range newInformers() {
					s.informers[name] = startInformer(t, newInformer(t, clients.config(certificates), r, "a"))
					s.informers[name].nextOf(t, there)
				}
				// An event for each, as reflectors list again after a short watch
				// without any.
				seen := r.label(t, "a", "stays", "yes")
				for name, informer := range s.informers {
					if got := informer.next(t); got != told("update", seen) {
						t.Errorf("the %s informer of %s was told %q", name, r.resource, got)
					}
				}
				s.before = r.list(t, "a", metav1.ListOptions{})
				all = append(all, s)
			})

			clients.cut()
			first.stop()
			second := serveContract(t, storage, certificates)
			for i := range all {
				s := &all[i]
				s.server = second
				after := s.list(t, "a", metav1.ListOptions{})
				if !maps.Equal(versions(after), versions(s.before)) || after.GetResourceVersion() != s.before.GetResourceVersion() {
					t.Errorf("%s after the restart: %v at %s, want %v at %s", s.resource,
						versions(after), after.GetResourceVersion(), versions(s.before), s.before.GetResourceVersion())
				}
				s.writeWhileNobodyWatches(t)
				if compacted {
					s.compact(t, s.list(t, "", metav1.ListOptions{}).GetResourceVersion())
					s.resumed = s.relisted // nothing can resume
				}
			}
			clients.connect(t, second)
			for _, s := range all {
				for name, informer := range s.informers {
					missed := func(all []string) bool {
						sorted := slices.Sorted(slices.Values(all))
						return slices.Equal(sorted, s.relisted) || slices.Equal(sorted, s.resumed)
					}
					if got := informer.collect(t, missed); !missed(got) {
						t.Fatalf("the %s informer of %s was told %q, want %q or %q", name, s.resource, got, s.relisted, s.resumed)
					}
				}
				last := s.create(t, s.object("a", "last"))
				now := versions(s.list(t, "a", metav1.ListOptions{}))
				for name, informer := range s.informers {
					if got := informer.next(t); got != told("add", last) {
						t.Errorf("the %s informer of %s was also told %q", name, s.resource, got)
					}
					if got := informer.contents(t); !maps.Equal(got, now) {
						t.Errorf("the %s informer of %s has %v, the server %v", name, s.resource, got, now)
					}
				}
			}
		})
	}
}

// writeWhileNobodyWatches notes what informers have to say of it, in order of
// text. One that lists again cannot tell a new object of an old name from the old
// one changed, and never hears of what came and went.
func (s *survivors) writeWhileNobodyWatches(t *testing.T) {
	t.Helper()
	get := func(name string) *unstructured.Unstructured {
		obj, err := s.in("a").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	goes, replaced := get("goes"), get("replaced")
	created := s.create(t, s.object("a", "new"))
	changed := s.label(t, "a", "changes", "yes")
	s.delete(t, "a", "goes")
	passing := s.create(t, s.object("a", "passing"))
	s.delete(t, "a", "passing")
	s.delete(t, "a", "replaced")
	replacement := s.create(t, s.object("a", "replaced"))

	if first, before := revision(t, created.GetResourceVersion()), revision(t, s.before.GetResourceVersion()); first != before+1 {
		t.Errorf("the first write after the restart is at %d, the last one before it at %d", first, before)
	}
	common := []string{told("add", created), told("update", changed), told("delete", goes)}
	s.relisted = append(slices.Clone(common), told("update", replacement))
	s.resumed = append(slices.Clone(common), told("add", passing), told("delete", passing), told("delete", replaced), told("add", replacement))
	slices.Sort(s.relisted)
	slices.Sort(s.resumed)

	// What a watch that resumes is sent, in order.
	w := s.server.watch(t, s.path("a"), watchQuery("resourceVersion="+s.before.GetResourceVersion()))
	for _, want := range []struct {
		eventType watch.EventType
		obj       *unstructured.Unstructured
	}{
		{watch.Added, created},
		{watch.Modified, changed},
		{watch.Deleted, goes},
		{watch.Added, passing},
		{watch.Deleted, passing},
		{watch.Deleted, replaced},
		{watch.Added, replacement},
	} {
		if event := w.next(t); event.Type != want.eventType || event.Object.GetUID() != want.obj.GetUID() {
			t.Errorf("a watch from before the restart got %s %s, want %s %s", event.Type, event.Object.GetName(), want.eventType, want.obj.GetName())
		}
	}
	w.close()
}

// A server that is told to stop ends its watches: clients of an open one would
// else keep it, and all who wait for its successor, for a minute.
func TestShutdownEndsWatches(t *testing.T) {
	t.Parallel()
	s := startContractServer(t)
	var open []*rawWatch
	eachKind(t, s, func(_ *testing.T, r *resourceClient) {
		open = append(open,
			s.watch(t, r.path(""), watchQuery("resourceVersion=1")),
			s.watch(t, r.path("a"), watchListQuery()))
	})
	s.stop()
	for _, w := range open {
		for _, event := range w.ended(t) {
			if event.Type == watch.Error {
				t.Errorf("the watch ended with %s", event)
			}
		}
	}
}
