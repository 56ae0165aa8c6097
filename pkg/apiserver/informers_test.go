// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/generated/informers/externalversions"
)

// newInformers are the ways to make an informer of a resource.
func newInformers() map[string]func(*testing.T, *rest.Config, *resourceClient, string) cache.SharedIndexInformer {
	return map[string]func(*testing.T, *rest.Config, *resourceClient, string) cache.SharedIndexInformer{
		"typed": func(t *testing.T, config *rest.Config, r *resourceClient, namespace string) cache.SharedIndexInformer {
			t.Helper()
			client, err := versioned.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			informer, err := externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithNamespace(namespace)).ForResource(r.gvr())
			if err != nil {
				t.Fatal(err)
			}
			return informer.Informer()
		},
		"dynamic": func(t *testing.T, config *rest.Config, r *resourceClient, namespace string) cache.SharedIndexInformer {
			t.Helper()
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			return dynamicinformer.NewFilteredDynamicInformer(client, r.gvr(), namespace, 0, nil, nil).Informer()
		},
		// What the quota and garbage collectors of every cluster run.
		"metadata": func(t *testing.T, config *rest.Config, r *resourceClient, namespace string) cache.SharedIndexInformer {
			t.Helper()
			client, err := metadata.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			return metadatainformer.NewFilteredMetadataInformer(client, r.gvr(), namespace, 0, nil, nil).Informer()
		},
	}
}

// requestLog counts the requests of a client by what they ask for.
type requestLog struct {
	mu     sync.Mutex
	counts map[string]int
}

type loggedTransport struct {
	http.RoundTripper

	log *requestLog
}

func (l *requestLog) of(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return loggedTransport{rt, l} })
	return config
}

func (l loggedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	what, query := "list", r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") == "true":
		what = "watch-list"
	case query.Has("watch"):
		what = "watch"
	}
	l.log.mu.Lock()
	if l.log.counts == nil {
		l.log.counts = map[string]int{}
	}
	l.log.counts[what]++
	l.log.mu.Unlock()
	return l.RoundTripper.RoundTrip(r)
}

func (l *requestLog) seen() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// informed collects what an informer tells its handler.
type informed struct {
	cache.SharedIndexInformer

	told chan string
}

// startInformer runs an informer until the test ends.
func startInformer(t *testing.T, informer cache.SharedIndexInformer) informed {
	t.Helper()
	i := informed{informer, make(chan string, 1000)}
	tell := func(what string, obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		accessor, err := meta.Accessor(obj)
		if err != nil {
			t.Errorf("told of %T: %v", obj, err)
			return
		}
		i.told <- told(what, accessor)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { tell("add", obj) },
		UpdateFunc: func(old, obj any) {
			// The same object once more is what a new list tells of each.
			if was, is := old.(metav1.Object), obj.(metav1.Object); was.GetResourceVersion() != is.GetResourceVersion() {
				tell("update", obj)
			}
		},
		DeleteFunc: func(obj any) { tell("delete", obj) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return i
}

// told is how informed notes what a handler is told.
func told(what string, obj metav1.Object) string {
	return fmt.Sprintf("%s %s/%s %s", what, obj.GetNamespace(), obj.GetName(), obj.GetUID())
}

func (i informed) waitForSync(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	select {
	case <-i.HasSyncedChecker().Done():
	case <-ctx.Done():
		t.Fatal("the informer never synced")
	}
}

// next is what the handler is told next.
func (i informed) next(t *testing.T) string {
	t.Helper()
	return i.nextOf(t, 1)[0]
}

// nextOf returns what the handler is told next, n times, in order of text.
func (i informed) nextOf(t *testing.T, n int) []string {
	t.Helper()
	all := i.collect(t, func(all []string) bool { return len(all) == n })
	if len(all) < n {
		t.Fatalf("the handler was told no more than %q, want %d", all, n)
	}
	slices.Sort(all)
	return all
}

// collect returns what the handler is told until that is enough.
func (i informed) collect(t *testing.T, enough func([]string) bool) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	all := []string{}
	for !enough(all) {
		select {
		case what := <-i.told:
			all = append(all, what)
		case <-ctx.Done():
			return all
		}
	}
	return all
}

// contents are the resourceVersions by namespace/name that the informer holds.
func (i informed) contents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, obj := range i.GetStore().List() {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		all[accessor.GetNamespace()+"/"+accessor.GetName()] = accessor.GetResourceVersion()
	}
	return all
}

// F09, F10, F11: informers of every make sync and follow, with the watch-list
// that newer clients use and with the list and watch of older ones, whether
// there is nothing, one object or a few hundred.
func TestInformers(t *testing.T) {
	eachKind(t, startContractServer(t), func(t *testing.T, r *resourceClient) {
		total := 0
		for _, n := range []int{0, 1, 250} {
			r.createMany(t, "a", fmt.Sprintf("o-%d", n), n-total)
			total = n
			for _, watchList := range []bool{true, false} {
				t.Run(fmt.Sprintf("of %d with WatchListClient=%t", n, watchList), func(t *testing.T) {
					clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
					testInformers(t, r, watchList)
				})
			}
		}
	})
}

func testInformers(t *testing.T, r *resourceClient, watchList bool) {
	t.Helper()
	type running struct {
		informed

		name     string
		scope    string
		requests *requestLog
	}
	var all []running
	for name, newInformer := range newInformers() {
		for _, scope := range bothScopes {
			requests := &requestLog{}
			informer := startInformer(t, newInformer(t, requests.of(r.server.config), r, scope))
			all = append(all, running{informer, fmt.Sprintf("%s informer of namespace %q", name, scope), scope, requests})
		}
	}
	for _, informer := range all {
		informer.waitForSync(t)
		list := r.list(t, informer.scope, metav1.ListOptions{})
		if got, want := informer.contents(t), versions(list); !maps.Equal(got, want) {
			t.Errorf("%s: it has %d objects, the list %d", informer.name, len(got), len(want))
		}
		var want []string
		for _, item := range list.Items {
			want = append(want, told("add", &item))
		}
		slices.Sort(want)
		if got := informer.nextOf(t, len(want)); !slices.Equal(got, want) {
			t.Errorf("%s: the handler was told %q, want %q", informer.name, got, want)
		}
	}

	live := r.create(t, r.object("a", "live"))
	r.label(t, "a", "live", "yes")
	r.delete(t, "a", "live")
	// One stream for all, or one list and one watch: nothing was tried twice.
	wanted := map[string]int{"list": 1, "watch": 1}
	if watchList {
		wanted = map[string]int{"watch-list": 1}
	}
	for _, informer := range all {
		for _, what := range []string{"add", "update", "delete"} {
			if got, want := informer.next(t), told(what, live); got != want {
				t.Errorf("%s: the handler was told %q, want %q", informer.name, got, want)
			}
		}
		if got := informer.requests.seen(); !maps.Equal(got, wanted) {
			t.Errorf("%s: it sent %v, want %v", informer.name, got, wanted)
		}
	}
}
