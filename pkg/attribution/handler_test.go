// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

func post(h http.Handler, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/audit?timeout=30s", body)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestHandlerKeepsFacts: when the answer is 200, the facts are found (C5).
func TestHandlerKeepsFacts(t *testing.T) {
	f := NewFacts(FactsConfig{})
	h := NewHandler(f, HandlerConfig{})
	w := post(h, bytes.NewReader(eventList(readEvent(t, "create"), readEvent(t, "get"), readEvent(t, "scale-update"))))
	if w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
	for uid, rv := range map[string]string{uid1: "4101", uid2: "4201"} {
		if username, ok := f.Find(versionOf(uid, rv)); !ok || username != "alice" {
			t.Errorf("%s: got %q, %v", rv, username, ok)
		}
	}
	if w := post(h, strings.NewReader(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":null}`)); w.Code != http.StatusOK {
		t.Errorf("empty list: got %d", w.Code)
	}
}

// TestHandlerRefuses: what is refused leaves nothing behind, even when its first
// events were fine.
func TestHandlerRefuses(t *testing.T) {
	good := string(eventList(readEvent(t, "create")))
	list := func(items string) string {
		return `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` + items + `]}`
	}
	create := string(readEvent(t, "create"))
	collection := string(readEvent(t, "deletecollection"))
	tests := []struct {
		name, body string
		change     func(*http.Request)
		code       int
	}{
		{"GET", good, func(r *http.Request) { r.Method = http.MethodGet }, http.StatusMethodNotAllowed},
		{"PUT", good, func(r *http.Request) { r.Method = http.MethodPut }, http.StatusMethodNotAllowed},
		{"no type", good, func(r *http.Request) { r.Header.Del("Content-Type") }, http.StatusUnsupportedMediaType},
		{"YAML", good, func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") }, http.StatusUnsupportedMediaType},
		{"compressed", good, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, http.StatusUnsupportedMediaType},
		{"empty", "", nil, http.StatusBadRequest},
		{"not an object", "[]", nil, http.StatusBadRequest},
		{"another kind", `{"kind":"Event","apiVersion":"audit.k8s.io/v1"}`, nil, http.StatusBadRequest},
		{"another version", strings.Replace(good, `"apiVersion":"audit.k8s.io/v1"`, `"apiVersion":"audit.k8s.io/v1beta1"`, 1), nil, http.StatusBadRequest},
		{"no kind", `{"items":[` + create + `]}`, nil, http.StatusBadRequest},
		{"items no list", strings.Replace(good, `"items":[`, `"items":{},"x":[`, 1), nil, http.StatusBadRequest},
		{"an item no object", list(create + `,"event"`), nil, http.StatusBadRequest},
		{"an item null", list(create + `,null`), nil, http.StatusBadRequest},
		{"cut", good[:len(good)-1], nil, http.StatusBadRequest},
		{"cut in a later event", list(create + "," + create[:len(create)/2]), nil, http.StatusBadRequest},
		{"trailing garbage", good + "x", nil, http.StatusBadRequest},
		{"two texts", good + good, nil, http.StatusBadRequest},
		{"an event too large", list(create + "," + strings.Replace(create, `"fast"`, `"`+strings.Repeat("x", 400<<10)+`"`, 1)), nil, http.StatusRequestEntityTooLarge},
		{"too many facts", list(create + "," + collection + "," + collection), nil, http.StatusRequestEntityTooLarge},
		{"a connection that was cut", good, func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(good[:len(good)/2]), iotest.ErrReader(io.ErrUnexpectedEOF)))
		}, http.StatusBadRequest},
		{"the server's own bound", good, func(r *http.Request) { r.Body = http.MaxBytesReader(nil, r.Body, 100) }, http.StatusRequestEntityTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := NewFacts(FactsConfig{})
			h := NewHandler(f, HandlerConfig{MaxEventBytes: 200 << 10, MaxBatchFacts: 4})
			r := httptest.NewRequest(http.MethodPost, "/audit", strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "application/json; charset=utf-8")
			if tt.change != nil {
				tt.change(r)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.code || w.Body.Len() == 0 {
				t.Errorf("got %d %q, want %d", w.Code, w.Body, tt.code)
			}
			if tt.code == http.StatusMethodNotAllowed && w.Header().Get("Allow") != http.MethodPost {
				t.Error("no Allow header")
			}
			if username, ok := f.Find(versionOf(uid1, "4101")); ok {
				t.Errorf("kept a fact of %s", username)
			}
			if w := post(h, strings.NewReader(good)); w.Code != http.StatusOK {
				t.Errorf("a good batch afterwards: got %d", w.Code)
			}
		})
	}
}

// TestHandlerAsksAgain: facts that cannot be kept are not acknowledged (C5).
func TestHandlerAsksAgain(t *testing.T) {
	k := &failingKeeper{err: errors.New("disk full")}
	f := NewFacts(FactsConfig{Keeper: k})
	h := NewHandler(f, HandlerConfig{})
	body := eventList(readEvent(t, "create"))
	if w := post(h, bytes.NewReader(body)); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	k.err = nil
	if w := post(h, bytes.NewReader(body)); w.Code != http.StatusOK {
		t.Errorf("got %d", w.Code)
	}
	if _, ok := f.Find(versionOf(uid1, "4101")); !ok {
		t.Error("the second try was not kept")
	}
}

// TestHandlerNotesMissingBodies is C22: the policy shows in Health.
func TestHandlerNotesMissingBodies(t *testing.T) {
	f := NewFacts(FactsConfig{})
	h := NewHandler(f, HandlerConfig{})
	post(h, bytes.NewReader(eventList(readEvent(t, "level-metadata"))))
	got := f.Health(time.Now())
	if len(got.WithoutBodies) != 1 {
		t.Fatalf("got %+v", got)
	}
	if why, _ := got.Degradation(got.WithoutBodies); why != NoResponseBodies {
		t.Errorf("got %q", why)
	}
}

func TestMetrics(t *testing.T) {
	m := NewMetrics()
	registry := metrics.NewKubeRegistry()
	m.Register(registry.MustRegister)
	f := NewFacts(FactsConfig{Metrics: m})
	h := NewHandler(f, HandlerConfig{Metrics: m})
	post(h, bytes.NewReader(eventList(readEvent(t, "create"), readEvent(t, "patch-merge"), readEvent(t, "get"), readEvent(t, "create-dry-run"))))
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP kommit_attribution_audit_events_total [ALPHA] Audit events received, by what became of them.
# TYPE kommit_attribution_audit_events_total counter
kommit_attribution_audit_events_total{result="dry_run"} 1
kommit_attribution_audit_events_total{result="fact"} 2
kommit_attribution_audit_events_total{result="out_of_scope"} 1
# HELP kommit_attribution_facts_total [ALPHA] Facts taken from audit events, by verb and degree of evidence.
# TYPE kommit_attribution_facts_total counter
kommit_attribution_facts_total{evidence="likely",verb="patch"} 1
kommit_attribution_facts_total{evidence="proven",verb="create"} 1
`), "kommit_attribution_audit_events_total", "kommit_attribution_facts_total")
	if err != nil {
		t.Error(err)
	}
}

// hugeBatch streams a list of n copies of a create whose bodies have this size.
func hugeBatch(t testing.TB, n, size int) io.Reader {
	event := string(readEvent(t, "create"))
	event = strings.ReplaceAll(event, `"fast"`, `"`+strings.Repeat("x", size/2)+`"`)
	readers := []io.Reader{strings.NewReader(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`)}
	for i := range n {
		separator := ","
		if i == n-1 {
			separator = "]}"
		}
		readers = append(readers, strings.NewReader(event), strings.NewReader(separator))
	}
	return io.MultiReader(readers...)
}

// TestHandlerMemoryIsBounded: C24, events of 1.5 MB, sent chunked, leave no trace in
// memory but their facts. What each further one takes says what 400 of them do.
func TestHandlerMemoryIsBounded(t *testing.T) {
	const most = 2 << 20
	h := NewHandler(NewFacts(FactsConfig{}), HandlerConfig{})
	// All that is ever allocated, freed or not.
	allocated := func(events int) int {
		body := hugeBatch(t, events, 1_500_000)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := post(h, body)
		runtime.ReadMemStats(&after)
		if w.Code != http.StatusOK {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		return int(after.TotalAlloc - before.TotalAlloc)
	}
	few, more := allocated(5), allocated(45)
	if of400 := few + (400-5)*max(0, more-few)/(45-5); of400 > most || more > most {
		t.Errorf("5 events allocated %d bytes, 45 %d: 400 would allocate %d", few, more, of400)
	}
}

// TestHandlerConcurrently: batches come at the same time, some of them twice (C7).
func TestHandlerConcurrently(t *testing.T) {
	f := NewFacts(FactsConfig{})
	h := NewHandler(f, HandlerConfig{})
	event := readEvent(t, "create")
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 50 {
				n := worker/2*50 + i // every batch twice
				body := eventList(bytes.ReplaceAll(event, []byte(`"4101"`), fmt.Appendf(nil, `"%d"`, n)))
				if w := post(h, bytes.NewReader(body)); w.Code != http.StatusOK {
					t.Errorf("got %d", w.Code)
				}
			}
		})
	}
	wg.Wait()
	for n := range 200 {
		if username, ok := f.Find(versionOf(uid1, fmt.Sprint(n))); !ok || username != "alice" {
			t.Errorf("%d: got %q, %v", n, username, ok)
		}
	}
}

// TestHandlerToJoiner: a change that waits is delivered by the POST of its event.
func TestHandlerToJoiner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFacts(FactsConfig{})
		h := NewHandler(f, HandlerConfig{})
		j := NewJoiner(JoinerConfig{Facts: f})
		go j.Run(t.Context())
		var got record
		j.Submit(t.Context(), versionOf(uid1, "4101"), got.deliver("create"))
		synctest.Wait()
		got.expect(t)
		post(h, bytes.NewReader(eventList(readEvent(t, "create"))))
		synctest.Wait()
		got.expect(t, "create alice")
	})
}

func versionOf(uid, rv string) Version {
	return Version{UID: types.UID(uid), ResourceVersion: rv, Resource: "configmaps", Namespace: "shop", Name: "settings"}
}

// BenchmarkHandler reads one event of 100 KB.
func BenchmarkHandler(b *testing.B) {
	body, err := io.ReadAll(hugeBatch(b, 10, 100_000))
	if err != nil {
		b.Fatal(err)
	}
	h := NewHandler(NewFacts(FactsConfig{}), HandlerConfig{})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		post(h, bytes.NewReader(body))
	}
}

// BenchmarkTokenizer is the same by a streaming tokenizer.
func BenchmarkTokenizer(b *testing.B) {
	body, err := io.ReadAll(hugeBatch(b, 10, 100_000))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		d := json.NewDecoder(bytes.NewReader(body))
		for {
			if _, err := d.Token(); err != nil {
				break
			}
		}
	}
}
