// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// sizes are the two states whose events must cost the same.
var sizes = []struct{ windows, waiting int }{{10, 1}, {10_000, 1_000}}

// BenchmarkWindowEvent is a save from its change to its write, and another
// change to a window that stays open, with a few or very many of both around.
func BenchmarkWindowEvent(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("windows=%d/waiting=%d", size.windows, size.waiting), func(b *testing.B) {
			e, now := crowded(size.windows, size.waiting)
			saver := Author{Username: "saver"}
			changes := make([]Change, size.windows)
			for i := range changes {
				changes[i] = crowdChange(i)
			}
			edit := crowdChange(0)
			edit.Author, edit.Object.Name = saver, "edited"
			events, i := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Microsecond)
				uid := types.UID(strconv.Itoa(i))
				e.Change(now, changes[(i*7919)%len(changes)])
				e.Change(now, edit)
				e.Register(now, Request{
					RequestRef: RequestRef{Name: "save", UID: uid}, Target: edit.Target, Author: saver, AttachDeadline: now,
				})
				if len(e.CaughtUp(now, uid)) != 1 {
					b.Fatal("nothing was saved")
				}
				e.Withdraw(now, uid)
				e.NextWake()
				events, i = events+5, i+1
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
		})
	}
}

// BenchmarkWindowIdleWake is a wake with nothing due.
func BenchmarkWindowIdleWake(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("windows=%d/waiting=%d", size.windows, size.waiting), func(b *testing.B) {
			e, now := crowded(size.windows, size.waiting)
			b.ReportAllocs()
			for b.Loop() {
				e.Wake(now)
				e.NextWake()
			}
		})
	}
}

func crowdChange(i int) Change {
	return Change{
		Target: targetName("prod"), Author: Author{Username: fmt.Sprintf("author-%d", i)},
		Object:   Object{Resource: "configmaps", Namespace: "shop", Name: fmt.Sprintf("object-%d", i)},
		Manifest: []byte("kind: ConfigMap"), Operation: Update,
	}
}

// crowded is an engine with one target, on which so many windows are open and so
// many requests wait.
func crowded(windows, waiting int) (*Engine, time.Time) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := New(Config{})
	e.SetTarget(now, Target{Name: targetName("prod"), IdleTimeout: time.Hour, MaxDuration: 24 * time.Hour})
	for i := range windows {
		e.Change(now.Add(time.Duration(i)), crowdChange(i))
	}
	for i := range waiting {
		uid := types.UID(fmt.Sprintf("waiting-%d", i))
		e.Register(now, Request{
			RequestRef: RequestRef{Name: string(uid), UID: uid}, Target: targetName("prod"),
			Author: Author{Username: string(uid)}, AttachDeadline: now.Add(time.Hour), Attach: v1alpha1.AttachCurrentOrNext,
		})
		e.CaughtUp(now, uid)
	}
	return e, now.Add(time.Second)
}
