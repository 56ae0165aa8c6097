// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// answer is one response to a request without a client library in between.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		t.Fatalf("%d: %v: %.1000s", a.code, err, a.body)
	}
}

// status is the answer as a failure.
func (a answer) status(t *testing.T) metav1.Status {
	t.Helper()
	var status metav1.Status
	a.decode(t, &status)
	if status.Kind != "Status" {
		t.Fatalf("%d: not a Status: %.1000s", a.code, a.body)
	}
	return status
}

// do sends one request, with headers as "Name: value".
func (s *contractServer) do(t *testing.T, method, path string, query url.Values, body string, headers ...string) answer {
	t.Helper()
	response := s.open(t, method, path, query, body, headers...)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{code: response.StatusCode, header: response.Header, body: content}
}

func (s *contractServer) open(t *testing.T, method, path string, query url.Values, body string, headers ...string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	t.Cleanup(cancel)
	target := s.config.Host + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		key, value, _ := strings.Cut(header, ": ")
		request.Header.Set(key, value)
	}
	response, err := s.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// rawWatch is a watch as it is on the wire.
type rawWatch struct {
	response *http.Response
	decoder  *json.Decoder
}

type rawEvent struct {
	Type   watch.EventType
	Object *unstructured.Unstructured
}

// String is the event in short, for comparing: type, name, resourceVersion.
func (e rawEvent) String() string {
	return strings.Join([]string{string(e.Type), e.Object.GetName(), e.Object.GetResourceVersion()}, " ")
}

// watchQuery is a watch with more parameters.
func watchQuery(parameters ...string) url.Values {
	query := url.Values{"watch": {"true"}}
	for _, p := range parameters {
		key, value, _ := strings.Cut(p, "=")
		query.Set(key, value)
	}
	return query
}

// watch returns once the response's header is there.
func (s *contractServer) watch(t *testing.T, path string, query url.Values, headers ...string) *rawWatch {
	t.Helper()
	response := s.open(t, http.MethodGet, path, query, "", headers...)
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		t.Fatalf("watch %s %v: %s: %s", path, query, response.Status, body)
	}
	return &rawWatch{response: response, decoder: json.NewDecoder(response.Body)}
}

func (w *rawWatch) next(t *testing.T) rawEvent {
	t.Helper()
	var event rawEvent
	if err := w.decoder.Decode(&event); err != nil {
		t.Fatalf("no further event: %v", err)
	}
	return event
}

// expect reads as many events as are wanted, each "TYPE name resourceVersion".
func (w *rawWatch) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, want := range want {
		if event := w.next(t); event.String() != want {
			t.Errorf("got %s, want %s", event, want)
		}
	}
}

// ended reads up to the end, which has to be a clean one, and returns the events.
func (w *rawWatch) ended(t *testing.T) []rawEvent {
	t.Helper()
	var events []rawEvent
	for {
		var event rawEvent
		err := w.decoder.Decode(&event)
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatalf("the watch did not end cleanly: %v", err)
		}
		events = append(events, event)
	}
}

// close stops reading.
func (w *rawWatch) close() { _ = w.response.Body.Close() }

// is writes an event as rawEvent.String does.
func is(eventType watch.EventType, obj *unstructured.Unstructured) string {
	return rawEvent{Type: eventType, Object: obj}.String()
}
