// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// What etcd3's tests of its own parts ask of any storage, under their names where
// the subject is the same. testdata/etcd3-replacements.txt has the others.

func TestInvalidKeys(t *testing.T) {
	s := newTestStore(t)
	for _, key := range []string{"", "/pods/../secrets/a", "/pods/ns/.", "/pods/./a", "/secrets/ns/a", "/podsandmore/a", "/pods/ns/a\x00b"} {
		_, watchErr := s.Watch(t.Context(), key, storage.ListOptions{Predicate: storage.Everything})
		for method, err := range map[string]error{
			"Create":           s.Create(t.Context(), key, pod("a"), nil, 0),
			"Delete":           s.Delete(t.Context(), key, &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}),
			"Watch":            watchErr,
			"Get":              s.Get(t.Context(), key, storage.GetOptions{}, &example.Pod{}),
			"GetList":          s.GetList(t.Context(), key, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, &example.PodList{}),
			"GuaranteedUpdate": s.GuaranteedUpdate(t.Context(), key, &example.Pod{}, true, nil, nil, nil),
		} {
			if err == nil || storage.IsNotFound(err) {
				t.Errorf("%s of %q: %v, want a refusal", method, key, err)
			}
		}
	}
	if got := revisionNow(t, s); got != 1 {
		t.Errorf("revision %d after refusals only, want 1", got)
	}
}

func TestPrefix(t *testing.T) {
	for configured, want := range map[string]string{
		"":                  "/pods/ns/a",
		"/":                 "/pods/ns/a",
		"custom/prefix":     "/custom/prefix/pods/ns/a",
		"/custom//prefix//": "/custom/prefix/pods/ns/a",
		"/registry":         "/registry/pods/ns/a",
	} {
		s := newTestStore(t, func(_ *Config, c *storeConfig) { c.pathPrefix = configured })
		if got, err := s.prepareKey("/pods/ns/a", false); err != nil || got != want {
			t.Errorf("with the prefix %q: %q, %v, want %q", configured, got, err, want)
		}
	}
}

func revisionNow(t *testing.T, s storage.Interface) uint64 {
	t.Helper()
	rev, err := s.GetCurrentResourceVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func TestGetCurrentResourceVersion(t *testing.T) {
	s := newTestStore(t)
	p := mustCreate(t, s, "a")
	if got, want := revisionNow(t, s), revision(t, p); got != want {
		t.Errorf("at %d after a write that was given %d", got, want)
	}
	unrelated := s.increaseRV(t.Context(), t)
	if got := revisionNow(t, s); got != uint64(unrelated) {
		t.Errorf("at %d after revision %d", got, unrelated)
	}
	if got := mustList(t, s, storage.ListOptions{}).Items[0].ResourceVersion; got != p.ResourceVersion {
		t.Errorf("the object moved from %s to %s", p.ResourceVersion, got)
	}
}

// TestLinearizedReadRevisionInvariant: reading takes no revision.
func TestLinearizedReadRevisionInvariant(t *testing.T) {
	s := newTestStore(t)
	p := mustCreate(t, s, "a")
	for range 5 {
		if err := s.Get(t.Context(), podKey("a"), storage.GetOptions{}, &example.Pod{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := mustList(t, s, storage.ListOptions{}).ResourceVersion; got != p.ResourceVersion {
		t.Errorf("list at %s after reads only, want %s", got, p.ResourceVersion)
	}
}

// TestPrefixStats: another resource's objects are not counted.
func TestPrefixStats(t *testing.T) {
	s := newTestStore(t)
	if err := s.EnableResourceSizeEstimation(noKeys); err != nil {
		t.Fatal(err)
	}
	other, err := s.db.newStore(storeConfig{
		groupResource: schema.GroupResource{Resource: "podsandmore"}, codec: testCodec(), newFunc: s.newFunc, resourcePrefix: "/podsandmore/",
	})
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, s, "a")
	big := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"l": strings.Repeat("x", 1000)}}}
	if err := other.Create(t.Context(), "/podsandmore/b", big, nil, 0); err != nil {
		t.Fatal(err)
	}
	o, _, err := s.load(podKey("a"))
	if err != nil {
		t.Fatal(err)
	}
	want := storage.Stats{ObjectCount: 1, EstimatedAverageObjectSizeBytes: int64(len(o.value))}
	if got, err := s.Stats(t.Context()); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func TestWatchErrorIncorrectConfiguration(t *testing.T) {
	s := newTestStore(t, func(_ *Config, c *storeConfig) { c.newFunc = nil })
	w, err := s.Watch(t.Context(), "/pods", storage.ListOptions{ProgressNotify: true, Recursive: true, Predicate: storage.Everything})
	if w != nil || !apierrors.IsInternalError(err) {
		t.Errorf("%v, %v, want an internal error", w, err)
	}
}

// A watch-list from a revision that does not exist yet is an error that says
// when to come back, not an endless wait.
func TestTooLargeResourceVersionErrorForWatchList(t *testing.T) {
	s := newTestStore(t)
	initial, pred := true, storage.Everything
	pred.AllowWatchBookmarks = true
	w := startWatch(t, s, storage.ListOptions{
		ResourceVersion: "102", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, SendInitialEvents: &initial, Predicate: pred,
	})
	e := <-w.ResultChan()
	status, ok := e.Object.(*metav1.Status)
	if e.Type != watch.Error || !ok {
		t.Fatalf("got %+v, want an error", e)
	}
	if err := apierrors.FromObject(status); !storage.IsTooLargeResourceVersion(err) || status.Details.RetryAfterSeconds <= 0 {
		t.Errorf("got %v with %+v", err, status.Details)
	}
	if e, open := <-w.ResultChan(); open {
		t.Errorf("%+v after the error", e)
	}
}

func TestWatchWithShardSelector(t *testing.T) {
	in, out := types.UID("uid-a"), types.UID("uid-b")
	if sharding.HexLess("0x"+sharding.HashField(string(in)), "0x"+sharding.HashField(string(out))) {
		in, out = out, in
	}
	selector := sharding.NewSelector(sharding.ShardRangeRequirement{
		Key: "object.metadata.uid", Start: "0x" + sharding.HashField(string(in)), End: "0x10000000000000000",
	})
	for name, enabled := range map[string]bool{
		"gate enabled filters out-of-shard events": true, "gate disabled ignores the shard selector": false,
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, enabled)
			s := newTestStore(t)
			pred := storage.Everything
			pred.GetAttrs, pred.ShardSelector = storage.DefaultNamespaceScopedAttr, selector
			w := startWatch(t, s, storage.ListOptions{ResourceVersion: mustCreate(t, s, "marker").ResourceVersion, Predicate: pred})
			create := func(name string, uid types.UID) *example.Pod {
				p := pod(name)
				p.UID = uid
				if err := s.Create(t.Context(), podKey(name), p, p, 0); err != nil {
					t.Fatal(err)
				}
				return p
			}
			// In this order: that "in" comes first shows that "out" never will.
			outside, inside := create("out", out), create("in", in)
			if !enabled {
				expect(t, w, watch.Added, outside)
			}
			expect(t, w, watch.Added, inside)
		})
	}
}

// TestAggregatedStorageErrorMessage: a list names every object it could not read,
// and says why it did not look further.
func TestAggregatedStorageErrorMessage(t *testing.T) {
	corrupt := &CorruptObjectError{Corruption: undecodable, Err: errors.New("bits flipped")}
	for name, test := range map[string]struct {
		add     func(*corruptions)
		message string // how it ends
		causes  []metav1.CauseType
	}{
		"aggregation completed without an abort": {
			add:     func(*corruptions) {},
			message: "(and 1 more)",
			causes:  []metav1.CauseType{metav1.CauseTypeUnexpectedServerResponse, metav1.CauseTypeUnexpectedServerResponse},
		},
		"aggregation aborted due to an unexpected error": {
			add:     func(c *corruptions) { c.add("/pods/c", errors.New("the disk is gone")) },
			message: "(and 1 more)",
			causes:  []metav1.CauseType{metav1.CauseTypeUnexpectedServerResponse, metav1.CauseTypeUnexpectedServerResponse, metav1.CauseTypeUnexpectedServerResponse},
		},
		"aggregation aborted after reaching the limit": {
			add: func(c *corruptions) {
				for i := 2; !c.add(fmt.Sprintf("/pods/%d", i), corrupt); i++ {
				}
			},
			message: fmt.Sprintf("(and %d more)", maxListedCorruptions-1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &corruptions{collect: true}
			c.add("/pods/a", corrupt)
			c.add("/pods/b", corrupt)
			test.add(c)
			var err apierrors.APIStatus
			if !errors.As(c.err(pods), &err) {
				t.Fatal("no status")
			}
			status := err.Status()
			if status.Reason != metav1.StatusReasonStoreReadError || !strings.HasSuffix(status.Message, test.message) {
				t.Errorf("reason %s, message %q, want it to end in %q", status.Reason, status.Message, test.message)
			}
			causes := status.Details.Causes
			if test.causes == nil { // the limit
				if last := causes[len(causes)-1]; len(causes) != maxListedCorruptions+1 || last.Type != metav1.CauseTypeTooMany {
					t.Errorf("%d causes, the last is %+v", len(causes), last)
				}
				return
			}
			for i, cause := range causes {
				if len(causes) != len(test.causes) || cause.Type != test.causes[i] {
					t.Fatalf("causes %+v, want types %v", causes, test.causes)
				}
			}
			if causes[0].Field != "/pods/a" || causes[1].Field != "/pods/b" {
				t.Errorf("causes name %s and %s", causes[0].Field, causes[1].Field)
			}
		})
	}
}
