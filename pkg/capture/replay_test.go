// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/pkg/attribution"
	"github.com/kommit-dev/kommit/pkg/window"
	"github.com/kommit-dev/kommit/test/recording"
)

// moment is something that happens in a replay.
type moment struct {
	at  time.Time
	run func()
}

// order is how the events of a recording come in a replay.
type order struct {
	name string
	// seeds is how many random orders there are; 0 is one that is not random.
	seeds int
	// audit says when an event is posted, again and again if there are several times.
	// Events that are posted at one time are one batch, those of the recording's batch
	// first.
	audit func(r *rand.Rand, received time.Time) []time.Time
	// watch delays a watch event; each watch keeps its order.
	watch func(r *rand.Rand) time.Duration
	// late is how late facts have been before; zero is that none came yet.
	late time.Duration
	// beyond says that events come after the grace, so that changes may stay unresolved.
	beyond bool
}

func within(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

// orders are the permutations of each recording. Those without beyond stay well
// within the grace.
func orders() []order {
	return []order{
		{name: "as received"},
		{name: "batches reversed", audit: func(_ *rand.Rand, received time.Time) []time.Time {
			const span = 15 * time.Second
			begin := received.Truncate(span)
			return []time.Time{begin.Add(2*span - received.Sub(begin))}
		}},
		{name: "all at once, late", audit: func(*rand.Rand, time.Time) []time.Time {
			return []time.Time{recording.Epoch.Add(40 * time.Second)}
		}},
		{name: "each late by up to a second", seeds: 2, audit: func(r *rand.Rand, received time.Time) []time.Time {
			return []time.Time{received.Add(within(r, time.Second))}
		}},
		{name: "batches of 30s", seeds: 2, audit: func(r *rand.Rand, received time.Time) []time.Time {
			return []time.Time{received.Truncate(30 * time.Second).Add(30 * time.Second)}
		}},
		{name: "each late by up to 40s", seeds: 2, late: 40 * time.Second, audit: func(r *rand.Rand, received time.Time) []time.Time {
			return []time.Time{received.Add(within(r, 40*time.Second))}
		}},
		{name: "each twice", seeds: 2, late: 30 * time.Second, audit: func(r *rand.Rand, received time.Time) []time.Time {
			return []time.Time{received.Add(within(r, 30*time.Second)), received.Add(within(r, 90*time.Second))}
		}},
		{name: "watches late", seeds: 2, watch: func(r *rand.Rand) time.Duration { return within(r, 5*time.Second) }},
		{name: "both late", seeds: 2, late: 40 * time.Second, audit: func(r *rand.Rand, received time.Time) []time.Time {
			return []time.Time{received.Add(within(r, 40*time.Second))}
		}, watch: func(r *rand.Rand) time.Duration { return within(r, 5*time.Second) }},
		{name: "beyond the grace", seeds: 2, late: 2 * time.Minute, beyond: true, audit: func(r *rand.Rand, received time.Time) []time.Time {
			return []time.Time{received.Add(within(r, 120*time.Second))}
		}},
		{name: "beyond the grace, watches late", seeds: 2, late: 2 * time.Minute, beyond: true, audit: func(r *rand.Rand, received time.Time) []time.Time {
			return []time.Time{received.Add(within(r, 120*time.Second))}
		}, watch: func(r *rand.Rand) time.Duration { return within(r, 5*time.Second) }},
	}
}

// notes is a Sink that keeps the changes of a replay.
type notes struct {
	branches
	mu   sync.Mutex
	list []window.Change
}

func (n *notes) Change(_ context.Context, c window.Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, c)
	return nil
}

// stage is a Capture without reflectors: a replay feeds its sources.
type stage struct {
	capture *Capture
	sources map[schema.GroupVersionResource]*source
	audit   http.Handler
	sink    *notes
}

func newStage(ctx context.Context, running *sync.WaitGroup, late time.Duration) *stage {
	facts := attribution.NewFacts(attribution.FactsConfig{})
	for _, before := range []time.Duration{2 * time.Minute, 30 * time.Second} {
		at := recording.Epoch.Add(-before)
		if late > 0 {
			_ = facts.Add(at, attribution.Fact{UID: "other", ResourceVersion: at.String(), Username: "dave", Completed: at.Add(-late)}) // nothing keeps facts here
		}
	}
	joiner := attribution.NewJoiner(attribution.JoinerConfig{Facts: facts, Grace: grace})
	running.Go(func() { joiner.Run(ctx) })
	st := &stage{sources: map[schema.GroupVersionResource]*source{}, audit: attribution.NewHandler(facts, attribution.HandlerConfig{}), sink: &notes{}}
	st.capture = New(Config{Joiner: joiner, Facts: facts, Sink: st.sink, AttributionGrace: grace})
	st.capture.targets.Store(&map[types.NamespacedName]target{recordedTarget: {uid: "target", attributed: true}})
	return st
}

var recordedTarget = types.NamespacedName{Namespace: "shop", Name: "main"}

// source is one that has seen the empty list from before the script.
func (st *stage) source(ctx context.Context, running *sync.WaitGroup, resource schema.GroupVersionResource) *source {
	s := st.sources[resource]
	if s != nil {
		return s
	}
	s = &source{
		capture: st.capture, key: sourceKey{resource, "shop"}, stopped: ctx.Done(), queue: make(chan func(context.Context), queueLength),
		records: map[string]record{}, flights: map[string][]leg{}, synced: true,
		claims: []*claim{{target: recordedTarget, selectors: []selector{{matches: labels.Everything()}}}},
	}
	st.sources[resource] = s
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case work := <-s.queue:
				work(ctx)
			}
		}
	})
	return s
}

func (st *stage) post(t *testing.T, events []json.RawMessage) {
	body := slices.Concat([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`),
		bytes.Join(raw(events), []byte(",")), []byte("]}"))
	request := httptest.NewRequest(http.MethodPost, "/audit", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	st.audit.ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		t.Errorf("a recorded batch is answered %d %s", answer.Code, answer.Body)
	}
}

func raw(events []json.RawMessage) [][]byte {
	list := make([][]byte, len(events))
	for i, e := range events {
		list[i] = e
	}
	return list
}

// posted is an event with the times at which it comes.
type posted struct {
	event json.RawMessage
	at    []time.Time
}

// outcome is what a replay led to.
type outcome struct {
	// changes came to the sink.
	changes []window.Change
	// seen is when the watch brought each version, by changeKey.
	seen  map[string]time.Time
	audit []posted
}

// decoded are the objects of the recording's watch events, which no replay changes.
func decoded(t *testing.T, r *recording.Recording) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, len(r.Watch))
	for i := range r.Watch {
		objects[i] = &unstructured.Unstructured{}
		if err := objects[i].UnmarshalJSON(r.Watch[i].Object); err != nil {
			t.Fatal(err)
		}
	}
	return objects
}

// replay plays the recording in the order.
func replay(t *testing.T, r *recording.Recording, objects []*unstructured.Unstructured, o order, seed int) outcome {
	got := outcome{seen: map[string]time.Time{}}
	random := rand.New(rand.NewPCG(uint64(seed), 6))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		var running sync.WaitGroup
		st := newStage(ctx, &running, o.late)
		var moments []moment
		for _, batch := range r.Batches {
			whole := map[time.Time][]json.RawMessage{}
			var times []time.Time
			for _, event := range batch.Events {
				at := []time.Time{batch.Received}
				if o.audit != nil {
					at = o.audit(random, batch.Received)
				}
				got.audit = append(got.audit, posted{event, at})
				for _, at := range at {
					if whole[at] == nil {
						times = append(times, at)
					}
					whole[at] = append(whole[at], event)
				}
			}
			for _, at := range times {
				moments = append(moments, moment{at, func() { st.post(t, whole[at]) }})
			}
		}
		watched := map[schema.GroupVersionResource]time.Time{}
		for i, w := range r.Watch {
			at := w.Received
			if o.watch != nil {
				at = at.Add(o.watch(random))
			}
			if at.Before(watched[w.Resource]) {
				at = watched[w.Resource]
			}
			watched[w.Resource] = at
			u := objects[i]
			key := string(u.GetUID())
			if w.Type != "DELETED" && u.GetDeletionTimestamp() == nil {
				key += "@" + u.GetResourceVersion()
			}
			if got.seen[key].IsZero() {
				got.seen[key] = at
			}
			s := st.source(ctx, &running, w.Resource)
			moments = append(moments, moment{at, func() {
				change := store{s}.Update
				if w.Type == "DELETED" {
					change = store{s}.Delete
				}
				if err := change(u); err != nil {
					t.Error(err)
				}
			}})
		}
		slices.SortStableFunc(moments, func(a, b moment) int { return a.at.Compare(b.at) })
		for _, m := range moments {
			<-time.After(time.Until(m.at))
			m.run()
		}
		<-time.After(3 * time.Minute)
		synctest.Wait()
		cancel()
		running.Wait()
		got.changes = st.sink.list
	})
	return got
}
