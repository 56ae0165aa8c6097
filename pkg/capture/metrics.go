// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics count what capture does. A nil *Metrics counts nothing.
type Metrics struct {
	lag *metrics.Histogram
}

// NewMetrics makes metrics that count once they are registered.
func NewMetrics() *Metrics {
	return &Metrics{lag: metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: "kommit", Subsystem: "capture", Name: "lag_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Time from a watch event to its changes being in their windows, the wait for their author included.",
		Buckets: []float64{.001, .005, .02, .1, .25, .5, 1, 2.5, 5, 10, 30, 45, 60, 120, 300},
	})}
}

// Register makes the metrics count and show in the registry whose MustRegister is
// given. It panics when called twice with one registry, as registries do.
func (m *Metrics) Register(mustRegister func(...metrics.Registerable)) { mustRegister(m.lag) }

// handedOn counts an event whose changes are in their windows; zero is one that
// no watch brought.
func (m *Metrics) handedOn(arrived time.Time) {
	if m != nil && !arrived.IsZero() {
		m.lag.Observe(time.Since(arrived).Seconds())
	}
}
