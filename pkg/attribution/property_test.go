// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// world is a kube-apiserver as far as authorship goes: requests that overlap, each
// persisting (or not) at one moment, events about them, and a watch.
type world struct {
	events   []arrival
	versions []sighting
	authors  map[string]string // by uid, and by uid@resourceVersion
}

// arrival is an audit event that comes to us at this time.
type arrival struct {
	at    time.Time
	event event
}

// sighting is a version that the watch shows us at this time.
type sighting struct {
	at      time.Time
	version Version
}

// request is one request to come: it is received, takes effect and completes.
type request struct {
	received, effect, completed time.Time
	user, kind, object          string
}

// live is an object as stored.
type live struct {
	uid      types.UID
	rv       string
	managers map[string]time.Time
	// askedBy is set once its deletion was asked for.
	asked     time.Time
	finalizer bool
}

// drawWorld lets three users and a controller work on two names for some seconds.
// lose is the percentage of events that never come.
func drawWorld(t *rapid.T, start time.Time, lose int) *world {
	users := []string{"alice", "bob", "carol", "system:serviceaccount:ops:operator"}
	ms := func(most int, label string) time.Duration {
		return time.Duration(rapid.IntRange(1, most).Draw(t, label)) * time.Millisecond
	}
	requests := make([]request, rapid.IntRange(1, 40).Draw(t, "requests"))
	for i := range requests {
		received := start.Add(ms(6000, "received"))
		if lose > 0 {
			// When a writer's event is lost, nothing tells the writer from another user who
			// asked for the same within the same second.
			received = start.Add(time.Duration(i) * 1100 * time.Millisecond)
		}
		effect := received.Add(ms(40, "effect"))
		requests[i] = request{
			received: received, effect: effect, completed: effect.Add(ms(40, "completed")),
			user:   rapid.SampledFrom(users).Draw(t, "user"),
			kind:   rapid.SampledFrom([]string{"write", "write", "replace", "remove", "nothing", "nothing", "replace-nothing", "status", "delete", "delete", "collection", "release"}).Draw(t, "kind"),
			object: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "object"),
		}
	}
	slices.SortStableFunc(requests, func(a, b request) int { return a.effect.Compare(b.effect) })
	w := &world{authors: map[string]string{}}
	stored := map[string]*live{}
	revision := 0
	watched := start
	see := func(at time.Time, o *live, name string, gone bool) {
		at = at.Add(ms(30, "watch"))
		if at.Before(watched) {
			at = watched // a watch keeps order
		}
		watched = at
		w.versions = append(w.versions, sighting{at, Version{UID: o.uid, ResourceVersion: o.rv, Resource: "configmaps", Namespace: "shop", Name: name, Deleted: gone}})
	}
	for _, r := range requests {
		o := stored[r.object]
		e := event{level: "RequestResponse", stage: "ResponseComplete", user: r.user, userAgent: r.user + "/v1", code: 200, verb: verbPatch,
			ref: objectRef{resource: "configmaps", namespace: "shop", name: r.object}, received: r.received, completed: r.completed}
		next := func() {
			revision++
			o.rv = strconv.Itoa(revision)
			w.authors[string(o.uid)+"@"+o.rv] = r.user
		}
		var askedBefore time.Time
		took := func() { o.managers[r.user] = r.effect.Truncate(time.Second) }
		switch {
		case o == nil && (r.kind == "write" || r.kind == "replace"):
			o = &live{uid: types.UID(fmt.Sprint("uid", revision)), managers: map[string]time.Time{}, finalizer: rapid.Bool().Draw(t, "finalizer")}
			stored[r.object] = o
			e.verb, e.code = verbCreate, 201
			took()
			next()
			see(r.effect, o, r.object, false)
		case o == nil:
			continue // 404
		case r.kind == "write" || r.kind == "status":
			if r.kind == "status" {
				e.ref.subresource = "status"
			}
			took()
			next()
			see(r.effect, o, r.object, false)
		case r.kind == "replace":
			e.verb, e.ref.resourceVersion = verbUpdate, o.rv
			took()
			next()
			see(r.effect, o, r.object, false)
		case r.kind == "remove":
			next()
			see(r.effect, o, r.object, false)
		case r.kind == "nothing":
		case r.kind == "replace-nothing":
			e.verb, e.ref.resourceVersion = verbUpdate, o.rv
		case r.kind == "delete" || r.kind == "collection":
			e.verb = verbDelete
			askedBefore = o.asked
			if o.asked.IsZero() {
				o.asked = r.effect
				w.authors[string(o.uid)] = r.user
				if o.finalizer {
					if r.kind == "delete" {
						next()
					}
				} else {
					delete(stored, r.object)
				}
				see(r.effect, o, r.object, true)
			}
		case r.kind == "release" && !o.asked.IsZero():
			delete(stored, r.object) // the last finalizer goes; the answer has the old version
		default:
			continue
		}
		e.response = response{known: true, apiVersion: "v1", kind: "ConfigMap", object: objectMeta{uid: o.uid, resourceVersion: o.rv, namespace: "shop", name: r.object}}
		for manager, at := range o.managers {
			e.response.object.managers = append(e.response.object.managers, managerTime{manager: manager, subresource: e.ref.subresource, time: at})
		}
		switch {
		case e.verb != verbDelete:
		case r.kind == "collection":
			e.verb = verbDeleteCollection
			e.response.object.deletionAsked = askedBefore.Truncate(time.Second)
			e.response = response{known: true, apiVersion: "v1", kind: "ConfigMapList", items: []objectMeta{e.response.object}}
		case !o.finalizer:
			e.response = response{known: true, apiVersion: "v1", kind: "Status", details: objectMeta{uid: o.uid, name: r.object}}
		default:
			e.response.object.deletionAsked = o.asked.Truncate(time.Second)
		}
		if rapid.IntRange(1, 100).Draw(t, "lost") <= lose {
			continue
		}
		for range rapid.IntRange(1, 2).Draw(t, "copies") {
			w.events = append(w.events, arrival{r.completed.Add(ms(5000, "late")), e})
		}
	}
	slices.SortStableFunc(w.events, func(a, b arrival) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	return w
}

// play lets the world happen to a Joiner, and returns who was named for each
// version; empty is unresolved.
func (w *world) play(t *testing.T) map[string][]string {
	f := NewFacts(FactsConfig{})
	j := NewJoiner(JoinerConfig{Facts: f})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { j.Run(ctx) })
	named := map[string][]string{}
	var mu sync.Mutex
	running.Go(func() {
		for _, s := range w.versions {
			advance(time.Until(s.at))
			j.Submit(ctx, s.version, func(username string, ok bool) {
				mu.Lock()
				defer mu.Unlock()
				key := s.version.key()
				named[key] = append(named[key], username)
			})
		}
	})
	// Facts have been late before.
	for _, before := range []time.Duration{-2 * delayWindow, 0} {
		add(t, f, bubbleStart.Add(before), Fact{UID: "other", ResourceVersion: "1", Username: "dave", Completed: bubbleStart.Add(before - 5*time.Second)})
	}
	for _, a := range w.events {
		advance(time.Until(a.at))
		facts, _ := a.event.facts(nil)
		for i := range facts {
			facts[i].Source = "10.0.0.1"
		}
		if err := f.Add(time.Now(), facts...); err != nil {
			t.Fatal(err)
		}
	}
	advance(2 * DefaultGrace)
	synctest.Wait()
	cancel()
	running.Wait()
	return named
}

// tell lists what there is to know about the version.
func (w *world) tell(v Version) string {
	var b strings.Builder
	for _, s := range w.versions {
		if s.version.key() == v.key() {
			fmt.Fprintf(&b, "seen %v\n", s.at)
		}
	}
	for _, a := range w.events {
		facts, o := a.event.facts(nil)
		if o == noChange && a.event.response.object.uid == v.UID {
			fmt.Fprintf(&b, "came %v, %v, %v: no change\n", a.at, a.event.received, a.event.completed)
		}
		for _, f := range facts {
			if f.UID == v.UID {
				fmt.Fprintf(&b, "came %v, %v, %v: %s\n", a.at, f.Time, f.Completed, describe(f))
			}
		}
	}
	return b.String()
}

func (v *Version) key() string {
	if v.Deleted {
		return string(v.UID)
	}
	return string(v.UID) + "@" + v.ResourceVersion
}

// bubbleStart is when time begins in a synctest bubble.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TestNeverAWrongAuthor: whatever order, delay, repetition and loss the events
// have, every change is delivered once, and nobody is named for what another one
// did (C7, C8).
func TestNeverAWrongAuthor(t *testing.T) {
	for _, lose := range []int{0, 20} {
		t.Run(fmt.Sprint(lose, "% lost"), func(t *testing.T) {
			var changes, resolved int
			rapid.Check(t, func(rt *rapid.T) {
				w := drawWorld(rt, bubbleStart.Add(time.Second), lose)
				var named map[string][]string
				synctest.Test(t, func(t *testing.T) { named = w.play(t) })
				for _, s := range w.versions {
					key := s.version.key()
					changes++
					switch got := named[key]; {
					case len(got) != 1:
						rt.Errorf("%s was delivered as %q", key, got)
					case got[0] == w.authors[key]:
						resolved++
					case got[0] != "":
						rt.Errorf("%s is by %s, not by %s\n%s", key, w.authors[key], got[0], w.tell(s.version))
					}
				}
			})
			if t.Failed() {
				return
			}
			t.Logf("%d of %d changes resolved", resolved, changes)
			if lose == 0 && resolved*100 < changes*90 {
				t.Errorf("only %d of %d changes resolved", resolved, changes)
			}
		})
	}
}
