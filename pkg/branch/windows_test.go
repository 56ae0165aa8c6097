// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

// follower sees the table as a watch does.
type follower struct {
	t      *testing.T
	pool   *Pool
	cursor uint64
}

// news are the events since the last call, as "TYPE namespace/author changes".
func (f *follower) news() []string {
	f.t.Helper()
	events, upTo, _, ok := f.pool.Since("", f.cursor)
	if !ok {
		f.t.Fatalf("revision %d is not known", f.cursor)
	}
	var got []string
	last := f.cursor
	for _, e := range events {
		w := e.Object.(*v1alpha1.CommitWindow)
		revision, err := strconv.ParseUint(w.ResourceVersion, 10, 64)
		if err != nil || revision <= last || revision > upTo {
			f.t.Errorf("resourceVersion %q is not between %d and %d", w.ResourceVersion, last, upTo)
		}
		last = revision
		got = append(got, fmt.Sprintf("%s %s/%s %d", e.Type, w.Namespace, w.Status.Author, w.Status.ChangeCount))
	}
	f.cursor = upTo
	return got
}

func (f *follower) want(want ...string) {
	f.t.Helper()
	if got := f.news(); !slices.Equal(got, want) {
		f.t.Errorf("news are %q, want %q", got, want)
	}
}

// collecting is a Pool whose engine collects, without anything around it.
func collecting(t *testing.T) (*Pool, *follower) {
	p := newBacklogs(t, 0)
	p.expiry = newExpiry(nil)
	p.destinations.providers = fixed[*v1alpha1.GitProvider]{} // so that nothing is pushed
	t.Cleanup(func() {
		p.requests.queue.ShutDown()
		p.readiness.queue.ShutDown()
		p.expiry.queue.ShutDown()
	})
	p.config.Recompare = func(types.NamespacedName) {}
	for _, name := range []types.NamespacedName{prod, {Namespace: "other", Name: "prod"}} {
		p.targets[name] = &v1alpha1.GitTarget{Spec: v1alpha1.GitTargetSpec{Path: "live"}}
		p.engine.SetTarget(time.Now(), window.Target{Name: name, IdleTimeout: time.Minute})
	}
	_, revision := p.Windows("")
	return p, &follower{t: t, pool: p, cursor: revision}
}

func (p *Pool) take1(t *testing.T, target types.NamespacedName, user, name string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apply(time.Now(), p.engine.Change(time.Now(), window.Change{
		Target: target, Object: window.Object{Group: "apps", Resource: "deployments", Namespace: target.Namespace, Name: name},
		Author: window.Author{Username: user}, Operation: window.Update, Manifest: []byte(name),
	}))
}

func TestWindowsAreServedAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := collecting(t)
		other := types.NamespacedName{Namespace: "other", Name: "prod"}
		p.take1(t, prod, "alice", "a")
		p.take1(t, other, "bob", "b")
		f.want("ADDED shop/alice 1", "ADDED other/bob 1")
		p.take1(t, prod, "alice", "c")
		p.take1(t, prod, "alice", "d")
		f.want("MODIFIED shop/alice 3")
		f.want()

		all, revision := p.Windows("")
		if revision != f.cursor || len(all) != 2 || all[0].Namespace != "other" {
			t.Errorf("%d windows at %d, want bob's and alice's at %d", len(all), revision, f.cursor)
		}
		open, _ := p.Windows("shop")
		if len(open) != 1 {
			t.Fatalf("%d windows in shop, want 1", len(open))
		}
		w := open[0]
		if w.Status.AuthorKind != v1alpha1.AuthorUser || w.Status.Bytes != 3 || w.Status.GitTargetRef.Name != "prod" ||
			w.Status.CloseTime == nil || w.Status.CloseTime.Sub(w.Status.OpenTime.Time) != time.Minute || w.UID == "" {
			t.Errorf("got %+v", w)
		}
		if got, want := w.Status.Changes[1].Path, "live/shop/deployments.apps/c.yaml"; got != want {
			t.Errorf("path is %q, want %q", got, want)
		}
		if _, ok := p.Window("other", w.Name); ok {
			t.Error("a window is found in another namespace")
		}
		if one, ok := p.Window("shop", w.Name); !ok || one.ResourceVersion != w.ResourceVersion {
			t.Errorf("Window gives %+v", one)
		}
	})
}

func TestClosedWindowsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := collecting(t)
		p.take1(t, prod, "alice", "a")
		f.want("ADDED shop/alice 1")
		before := f.cursor
		p.mu.Lock()
		p.apply(time.Now(), p.engine.RemoveTarget(time.Now(), prod))
		p.mu.Unlock()
		f.want("DELETED shop/alice 1")
		f.want()
		// One that was opened and closed since is nothing to a watch that saw neither.
		fresh := &follower{t: t, pool: p, cursor: before - 1}
		fresh.want()
		if open, _ := p.Windows(""); len(open) != 0 {
			t.Errorf("open are %+v", open)
		}
	})
}

func TestWindowsOfAnotherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := collecting(t)
		for _, revision := range []uint64{0, 1, f.cursor - 1, f.cursor + 1} {
			if _, _, _, ok := p.Since("", revision); ok {
				t.Errorf("revision %d is taken for known, the table is at %d", revision, f.cursor)
			}
		}
		time.Sleep(time.Second)
		if next, _ := collecting(t); next.windows.revision <= p.windows.revision {
			t.Errorf("the next process starts at %d, this one is at %d", next.windows.revision, p.windows.revision)
		}
	})
}

func TestRememberedWindowsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := collecting(t)
		start := f.cursor
		p.take1(t, prod, "keeper", "kept")
		for range maxClosedWindows + 10 {
			p.take1(t, prod, "alice", "a")
			p.take1(t, prod, "bob", "a") // takes the object, so that alice's window closes
		}
		if n := p.windows.changes.Len(); n > maxClosedWindows+3 {
			t.Errorf("%d windows are remembered", n)
		}
		if _, _, _, ok := p.Since("", start); ok {
			t.Error("a revision whose changes were dropped is taken for known")
		}
		if _, upTo, _, ok := p.Since("", p.windows.revision); !ok || upTo != p.windows.revision {
			t.Errorf("the newest revision is not known")
		}
	})
}

func TestFollowersAreWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := collecting(t)
		_, _, next, _ := p.Since("", f.cursor)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		woken := make(chan bool, 1)
		go func() {
			select {
			case <-next:
				woken <- true
			case <-ctx.Done():
			}
		}()
		synctest.Wait()
		if len(woken) != 0 {
			t.Fatal("woken by nothing")
		}
		p.take1(t, prod, "alice", "a")
		synctest.Wait()
		if len(woken) != 1 {
			t.Error("not woken by a change")
		}
		f.want("ADDED shop/alice 1")
	})
}
