// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// namePrefix begins the name of each metric.
const namePrefix = "kommit_storage_"

// collector shows a DB's statistics, read at each scrape.
type collector struct {
	db *DB

	healthy, fileSize, freePages, freeBytes *prometheus.Desc
	lastCompaction, compactionAge           *prometheus.Desc
	objects, objectBytes, history           *prometheus.Desc // by group and resource
}

var _ prometheus.Collector = (*collector)(nil)

// Collector returns the metrics of db, for a registry that holds no other DB's.
// A scrape reads counters and touches no object.
func (db *DB) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namePrefix+name, help, labels, nil)
	}
	return &collector{
		db:             db,
		healthy:        desc("healthy", "1 if the next write is expected to succeed, else 0."),
		fileSize:       desc("file_size_bytes", "Size of the storage file."),
		freePages:      desc("free_pages", "Pages of the storage file that hold nothing and are written before it grows."),
		freeBytes:      desc("free_bytes", "Size of those pages."),
		lastCompaction: desc("last_compaction_timestamp_seconds", "When all histories were last found or brought within their bounds; absent before the first time."),
		compactionAge:  desc("last_compaction_age_seconds", "How long ago that was, or the storage file was opened."),
		objects:        desc("objects", "Stored objects.", "group", "resource"),
		objectBytes:    desc("object_bytes", "Size of the stored objects, as encoded and encrypted.", "group", "resource"),
		history:        desc("history_revisions", "Revisions that watches and exact lists can reach back to.", "group", "resource"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.healthy, c.fileSize, c.freePages, c.freeBytes, c.lastCompaction, c.compactionAge, c.objects, c.objectBytes, c.history,
	} {
		ch <- d
	}
	c.db.stats.commitTimes.Describe(ch)
	c.db.stats.batchSizes.Describe(ch)
}

// Collect implements prometheus.Collector. Of a closed DB there is no more to say
// than that it is not healthy.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	c.db.stats.commitTimes.Collect(ch)
	c.db.stats.batchSizes.Collect(ch)
	s, err := c.db.Statistics()
	if err != nil || c.db.Ready() != nil {
		gauge(c.healthy, 0)
	} else {
		gauge(c.healthy, 1)
	}
	if err != nil {
		return
	}
	gauge(c.fileSize, float64(s.FileBytes))
	gauge(c.freePages, float64(s.FreePages))
	gauge(c.freeBytes, float64(s.FreePages*s.PageBytes))
	last := s.Opened
	if !s.LastCompaction.IsZero() {
		last = s.LastCompaction
		gauge(c.lastCompaction, float64(last.UnixMilli())/1000)
	}
	gauge(c.compactionAge, time.Since(last).Seconds())
	for name, r := range s.Resources {
		gr := schema.ParseGroupResource(name)
		gauge(c.objects, float64(r.Objects), gr.Group, gr.Resource)
		gauge(c.objectBytes, float64(r.Bytes), gr.Group, gr.Resource)
		gauge(c.history, float64(r.HistoryLength()), gr.Group, gr.Resource)
	}
}
