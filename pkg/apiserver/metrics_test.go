// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"bytes"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metricsOf reads /metrics: values by name with labels, as written there.
func metricsOf(t *testing.T, s *runningServer) map[string]float64 {
	t.Helper()
	response, body := s.get(t, "admin", "/metrics")
	if response.StatusCode != 200 {
		t.Fatalf("/metrics: %d %s", response.StatusCode, body)
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		line := lines.Text()
		space := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || space < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			t.Fatalf("/metrics: %q: %v", line, err)
		}
		values[line[:space]] = value
	}
	return values
}

// Two servers of one process show their own storage, and both the API machinery's.
func TestStorageMetrics(t *testing.T) {
	server, other := runServer(t, storageFile(t)), runServer(t, storageFile(t))
	<-server.serving
	<-other.serving
	const resource = `{group="kommit.dev",resource="gitproviders"}`
	before, quiet := metricsOf(t, server), metricsOf(t, other)
	client := server.client(t)
	for _, name := range []string{"a", "b", "c"} {
		createProvider(t, client, name, "https://git.example.com/a.git")
	}
	if err := client.KommitV1alpha1().GitProviders("team").Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	after := metricsOf(t, server)
	for name, want := range map[string]float64{
		"kommit_storage_objects" + resource:                        2,
		"kommit_storage_history_revisions" + resource:              4,
		"kommit_storage_commit_operations_sum":                     4,
		"kommit_storage_commit_operations_count":                   4,
		"kommit_storage_commit_duration_seconds_count":             4,
		`kommit_storage_commit_operations_bucket{le="1"}`:          4,
		"kommit_storage_healthy":                                   0,
		`kommit_storage_commit_duration_seconds_bucket{le="+Inf"}`: 4,
	} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s grew by %v with four writes, want %v", name, got, want)
		}
	}
	for name, ok := range map[string]bool{
		"healthy":           after["kommit_storage_healthy"] == 1,
		"file size":         after["kommit_storage_file_size_bytes"] >= 4*4096,
		"bytes of objects":  after["kommit_storage_object_bytes"+resource] > 100,
		"time of commits":   after["kommit_storage_commit_duration_seconds_sum"] > before["kommit_storage_commit_duration_seconds_sum"],
		"age of compaction": after["kommit_storage_last_compaction_age_seconds"] > before["kommit_storage_last_compaction_age_seconds"],
	} {
		if !ok {
			t.Errorf("%s is wrong: %v", name, after)
		}
	}
	if got := metricsOf(t, other)["kommit_storage_commit_operations_sum"]; got != quiet["kommit_storage_commit_operations_sum"] {
		t.Errorf("the other server counts %v operations, had %v", got, quiet)
	}
	found := false
	for name := range after {
		found = found || strings.HasPrefix(name, "apiserver_request_total")
	}
	if !found {
		t.Error("the API machinery's metrics are gone")
	}
}
