// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// 5.5: a list proves nothing of what was persisted after it began, so whoever comes
// while one is under way has the next.
func TestListsAreSharedAndNeverOlderThanTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var began []time.Duration
		failed := errors.New("the second list")
		l := sharedLists{}
		l.list = func() (*metav1.PartialObjectMetadataList, error) {
			began = append(began, time.Since(start))
			version := time.Since(start).String()
			n := len(began)
			time.Sleep(10 * time.Second)
			if n == 2 {
				return nil, failed
			}
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
		}
		type got struct {
			version string
			err     error
			at      time.Duration
		}
		call := func(ctx context.Context, at time.Duration) chan got {
			answer := make(chan got, 1)
			go func() {
				time.Sleep(at)
				list, err := l.fresh(ctx)
				g := got{err: err, at: time.Since(start)}
				if list != nil {
					g.version = list.ResourceVersion
				}
				answer <- g
			}()
			return answer
		}
		impatient, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		for i, test := range []struct {
			call chan got
			want got
		}{
			{call(t.Context(), 0), got{version: "0s", at: 10 * time.Second}},
			{call(t.Context(), time.Second), got{err: failed, at: 20 * time.Second}},
			{call(t.Context(), 9*time.Second), got{err: failed, at: 20 * time.Second}},
			{call(impatient, 9*time.Second), got{err: context.DeadlineExceeded, at: 12 * time.Second}},
			{call(t.Context(), 15*time.Second), got{version: "20s", at: 30 * time.Second}},
			{call(t.Context(), time.Minute), got{version: "1m0s", at: 70 * time.Second}},
		} {
			if g := <-test.call; g.version != test.want.version || !errors.Is(g.err, test.want.err) || g.at != test.want.at {
				t.Errorf("call %d: got %+v, want %+v", i, g, test.want)
			}
		}
		if len(began) != 4 {
			t.Errorf("lists began at %v, want 4", began)
		}
	})
}
