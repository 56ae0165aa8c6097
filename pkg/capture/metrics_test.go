// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

// TestLagIsMeasured: from the watch event to the window, the wait for the author
// included; what a list shows has no such time.
func TestLagIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetrics()
		registry := metrics.NewKubeRegistry()
		m.Register(registry.MustRegister)
		b := newBench(t, func(b *bench) {
			b.capture.Metrics = m
			b.write(configMaps, configMap("old", "1"))
			b.target("main")
			b.rules.Add(newRule("rule", "main", core("configmaps")))
		})
		time.Sleep(time.Minute) // the baseline is over
		uid, version := b.write(configMaps, configMap("new", "1"))
		time.Sleep(3 * time.Second)
		b.says("alice", uid, version)
		synctest.Wait()
		got, err := testutil.GetHistogramVecFromGatherer(registry, "kommit_capture_lag_seconds", nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, sum := got.GetAggregatedSampleCount(), got.GetAggregatedSampleSum(); n != 1 || sum != 3 {
			t.Errorf("%d samples, %v s together", n, sum)
		}
	})
}
