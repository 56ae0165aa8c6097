// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics count what attribution does. A nil *Metrics counts nothing.
type Metrics struct {
	events     *metrics.CounterVec
	facts      *metrics.CounterVec
	delay      *metrics.Histogram
	joined     *metrics.CounterVec
	unresolved *metrics.CounterVec
	wait       *metrics.Histogram
	pending    *metrics.Gauge
	forgotten  *metrics.Counter
}

// NewMetrics makes metrics that count once they are registered.
func NewMetrics() *Metrics {
	const namespace, subsystem = "kommit", "attribution"
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	seconds := func(name, help string) *metrics.Histogram {
		return metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA,
			Buckets: []float64{.001, .005, .02, .1, .25, .5, 1, 2.5, 5, 10, 30, 45, 60, 120, 300},
		})
	}
	return &Metrics{
		events:     counter("audit_events_total", "Audit events received, by what became of them.", "result"),
		facts:      counter("facts_total", "Facts taken from audit events, by verb and degree of evidence.", "verb", "evidence"),
		delay:      seconds("fact_delay_seconds", "Time from the response of a request to its fact."),
		joined:     counter("joined_total", "Changes whose author was found, by degree of evidence.", "evidence"),
		unresolved: counter("unresolved_total", "Changes whose author was not found, by cause.", "cause"),
		wait:       seconds("join_wait_seconds", "Time that a change waited for its author."),
		pending: metrics.NewGauge(&metrics.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "pending_changes",
			Help: "Changes that wait for their author now.", StabilityLevel: metrics.ALPHA}),
		forgotten: metrics.NewCounter(&metrics.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "forgotten_facts_total",
			Help: "Facts that were forgotten early, because there were too many.", StabilityLevel: metrics.ALPHA}),
	}
}

// Register makes the metrics count and show in the registry whose MustRegister is
// given. It panics when called twice with one registry, as registries do.
func (m *Metrics) Register(mustRegister func(...metrics.Registerable)) {
	mustRegister(m.events, m.facts, m.delay, m.joined, m.unresolved, m.wait, m.pending, m.forgotten)
}

func (m *Metrics) event(o outcome, n int) {
	if m != nil {
		m.events.WithLabelValues(string(o)).Add(float64(n))
	}
}

func (m *Metrics) fact(now time.Time, f *Fact) {
	if m == nil {
		return
	}
	m.facts.WithLabelValues(f.Verb, f.Evidence.String()).Inc()
	if completed := f.completedAt(); !completed.IsZero() {
		m.delay.Observe(max(0, now.Sub(completed)).Seconds())
	}
}

func (m *Metrics) evicted() {
	if m != nil {
		m.forgotten.Inc()
	}
}

func (m *Metrics) waiting(n int) {
	if m != nil {
		m.pending.Set(float64(n))
	}
}

// decided counts a change that was delivered after this wait.
func (m *Metrics) decided(v verdict, wait time.Duration) {
	if m == nil {
		return
	}
	m.wait.Observe(wait.Seconds())
	if v.found {
		m.joined.WithLabelValues(v.evidence.String()).Inc()
		return
	}
	m.unresolved.WithLabelValues(string(v.cause)).Inc()
}
