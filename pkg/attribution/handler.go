// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// Defaults of HandlerConfig.
const (
	DefaultMaxEventBytes = 256 << 20
	DefaultMaxBatchFacts = 1_000_000
)

// HandlerConfig bounds what a Handler takes. Zero fields take the defaults, which
// are generous: kube-apiserver drops a whole batch that is refused.
type HandlerConfig struct {
	// MaxEventBytes bounds one event, give or take 64 KiB. It costs no memory: events
	// are not held.
	MaxEventBytes int64
	// MaxBatchFacts bounds the facts of one batch, which are held until its end.
	MaxBatchFacts int
	// Metrics may be nil.
	Metrics *Metrics
}

// handler takes batches of audit events. Memory per request is bounded, whatever
// the size of the batch.
type handler struct {
	facts    *Facts
	maxEvent int64
	maxFacts int
	metrics  *Metrics
	scanners sync.Pool
}

var _ http.Handler = (*handler)(nil)

// NewHandler serves the audit webhook of kube-apiserver: POST of an
// audit.k8s.io/v1 EventList (C5, C11). It does not authenticate; whoever mounts it
// does. The answers are
//
//	200  all facts of the batch are kept
//	400  not an EventList; nothing of it was kept
//	405  not a POST
//	413  an event, or the batch's number of facts, exceeds its bound; nothing was kept
//	415  not JSON, or compressed
//	503  the facts could not be kept: send the batch again
//
// Batches may come twice, unordered and at the same time (C7).
func NewHandler(facts *Facts, c HandlerConfig) http.Handler {
	return &handler{
		facts:    facts,
		maxEvent: cmp.Or(c.MaxEventBytes, DefaultMaxEventBytes),
		maxFacts: cmp.Or(c.MaxBatchFacts, DefaultMaxBatchFacts),
		metrics:  c.Metrics,
		scanners: sync.Pool{New: func() any { return new(scanner) }},
	}
}

// UnsupportedKindError says that a body is JSON, but not the kind that is served.
type UnsupportedKindError struct {
	APIVersion, Kind string
}

func (e *UnsupportedKindError) Error() string {
	return fmt.Sprintf("the body is %q of %q, send an EventList of audit.k8s.io/v1 (kube-apiserver: --audit-webhook-version=audit.k8s.io/v1)", e.Kind, e.APIVersion)
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "send audit events by POST", http.StatusMethodNotAllowed)
		return
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		http.Error(w, "send audit events as application/json", http.StatusUnsupportedMediaType)
		return
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		http.Error(w, "send audit events uncompressed", http.StatusUnsupportedMediaType)
		return
	}
	b, err := h.read(r.Body)
	if err == nil {
		source, _, _ := net.SplitHostPort(r.RemoteAddr)
		err = h.keep(b, source)
	}
	if err == nil {
		return // 200
	}
	klog.FromContext(r.Context()).V(2).Info("Refused a batch of audit events", "err", err)
	code := statusOf(err)
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, err.Error(), code)
}

// batch is what is held of a POST until its end.
type batch struct {
	facts    []Fact
	bodyless map[schema.GroupResource]bool
	outcomes map[outcome]int
}

// read takes the facts out of a body.
func (h *handler) read(body io.Reader) (*batch, error) {
	s, _ := h.scanners.Get().(*scanner)
	defer h.scanners.Put(s)
	s.reset(body)
	defer s.reset(nil)
	b := &batch{outcomes: map[outcome]int{}}
	err := s.eventList(h.maxEvent, func(e *event) error {
		var o outcome
		b.facts, o = e.facts(b.facts)
		b.outcomes[o]++
		if o == noBody {
			b.missBody(schema.GroupResource{Group: e.ref.group, Resource: e.ref.resource})
		}
		if len(b.facts) > h.maxFacts {
			return &TooLargeError{What: "number of facts in a batch", Limit: int64(h.maxFacts)}
		}
		return nil
	})
	return b, err
}

func (b *batch) missBody(gr schema.GroupResource) {
	if b.bodyless == nil {
		b.bodyless = map[schema.GroupResource]bool{}
	}
	if len(b.bodyless) < maxTallied {
		b.bodyless[gr] = true
	}
}

// keep adds the facts of a complete batch.
func (h *handler) keep(b *batch, source string) error {
	now := time.Now()
	for i := range b.facts {
		b.facts[i].Source = source
	}
	if err := h.facts.Add(now, b.facts...); err != nil {
		return err
	}
	if len(b.bodyless) > 0 {
		h.facts.noteBodyless(now, b.bodyless)
	}
	for o, n := range b.outcomes {
		h.metrics.event(o, n)
	}
	return nil
}

// statusOf is the answer to a batch that was not kept.
func statusOf(err error) int {
	var (
		tooLarge *TooLargeError
		maxBytes *http.MaxBytesError
		notKept  *NotKeptError
	)
	switch {
	case errors.As(err, &tooLarge), errors.As(err, &maxBytes):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, &notKept):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}
