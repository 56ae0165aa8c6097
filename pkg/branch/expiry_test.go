// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned/fake"
)

func finished(name string, ttl int32, at time.Time) *v1alpha1.CommitRequest {
	completed := metav1.NewTime(at)
	return &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "7"},
		Spec:       v1alpha1.CommitRequestSpec{TTLSecondsAfterFinished: &ttl},
		Status:     v1alpha1.CommitRequestStatus{CompletionTime: &completed},
	}
}

// DESIGN 4.4: finished requests are deleted after their ttlSecondsAfterFinished,
// and no others.
func TestFinishedRequestsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		kept, collecting, deleting := finished("kept", 60, start), finished("collecting", 0, start), finished("deleting", 0, start)
		kept.Spec.TTLSecondsAfterFinished = nil
		collecting.Status.CompletionTime = nil
		now := metav1.NewTime(start)
		deleting.DeletionTimestamp, deleting.Finalizers = &now, []string{"example.com/kept"}
		requests := []*v1alpha1.CommitRequest{
			finished("at-once", 0, start), finished("in-a-minute", 60, start), finished("long-ago", 60, start.Add(-time.Hour)),
			finished("in-a-week", 604800, start), kept, collecting, deleting,
		}
		client := fake.NewClientset()
		for _, r := range requests {
			if err := client.Tracker().Add(r); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var deleted []string
		client.PrependReactor("delete", "commitrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
			d := action.(clienttesting.DeleteActionImpl)
			if p := d.DeleteOptions.Preconditions; p == nil || p.UID == nil || *p.UID != types.UID(d.Name) || p.ResourceVersion == nil {
				t.Errorf("%s is deleted with preconditions %+v, want its UID and resourceVersion", d.Name, p)
			}
			mu.Lock()
			defer mu.Unlock()
			deleted = append(deleted, d.Name)
			return false, nil, nil
		})
		x := newExpiry(client.KommitV1alpha1())
		go x.run(t.Context())
		for _, r := range requests {
			x.schedule(r)
		}
		want := func(names ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(deleted)
			if !slices.Equal(deleted, names) {
				t.Errorf("after %s deleted are %q, want %q", time.Since(start), deleted, names)
			}
		}
		want("at-once", "long-ago")
		time.Sleep(59 * time.Second)
		want("at-once", "long-ago")
		time.Sleep(2 * time.Second)
		want("at-once", "in-a-minute", "long-ago")
		time.Sleep(7 * 24 * time.Hour)
		want("at-once", "in-a-minute", "in-a-week", "long-ago")
	})
}

// A name is used again: the request of another UID is not finished.
func TestExpiryLooksAtTheRequestAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		stored := finished("again", 60, time.Now())
		stored.UID = "another"
		if err := client.Tracker().Add(stored); err != nil {
			t.Fatal(err)
		}
		x := newExpiry(client.KommitV1alpha1())
		go x.run(t.Context())
		x.schedule(finished("again", 0, time.Now()))
		x.schedule(finished("gone", 0, time.Now()))
		time.Sleep(time.Hour)
		if _, err := client.KommitV1alpha1().CommitRequests(namespace).Get(t.Context(), "again", metav1.GetOptions{}); err != nil {
			t.Errorf("a request of another UID was deleted: %v", err)
		}
	})
}
