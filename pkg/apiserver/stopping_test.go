// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// From the moment on that a server is told to stop it is not ready and takes no new
// saves; all else goes on until its windows are flushed.
func TestStopping(t *testing.T) {
	t.Parallel()
	server := runServer(t, storageFile(t))
	<-server.serving
	client := server.client(t)
	createTarget(t, client)
	createProvider(t, client, "before", "https://git.example.com/a.git")
	events, err := client.KommitV1alpha1().GitProviders("team").Watch(t.Context(), metav1.ListOptions{ResourceVersion: listProviders(t, client).ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	server.flushing.Lock()
	server.tell()
	server.until(t, "/readyz", http.StatusInternalServerError, http.StatusOK)
	if _, body := server.get(t, "admin", "/readyz"); !strings.Contains(string(body), "[-]shutdown failed") {
		t.Errorf("/readyz does not say why:\n%s", body)
	}
	if response, body := server.get(t, "admin", "/livez"); response.StatusCode != http.StatusOK {
		t.Errorf("/livez: %d %s", response.StatusCode, body)
	}

	const request = `{"apiVersion":"kommit.dev/v1alpha1","kind":"CommitRequest","metadata":{"name":"late"},"spec":{"gitTargetRef":{"name":"prod"},"message":"Late"}}`
	for _, save := range []struct{ method, path, contentType string }{
		{http.MethodPost, inTeam + "commitrequests", "application/json"},
		{http.MethodPost, inTeam + "commitrequests?dryRun=All", "application/json"},
		{http.MethodPost, inTeam + "gittargets/prod/commits", "application/json"},
		{http.MethodPost, inTeam + "gittargets/prod/commits?dryRun=All", "application/json"},
		{http.MethodPatch, inTeam + "commitrequests/late?fieldManager=test", "application/apply-patch+yaml"},
	} {
		response, body := server.send(t, "admin", save.method, save.path, save.contentType, request)
		status := statusIn(t, body)
		if response.StatusCode != http.StatusServiceUnavailable || status.Reason != metav1.StatusReasonServiceUnavailable {
			t.Errorf("%s %s: %d %s", save.method, save.path, response.StatusCode, body)
			continue
		}
		header := response.Header.Get("Retry-After")
		if status.Details == nil || status.Details.RetryAfterSeconds <= 0 || header != fmt.Sprint(status.Details.RetryAfterSeconds) {
			t.Errorf("%s %s: Retry-After is %q, in the body %+v", save.method, save.path, header, status.Details)
		}
	}
	if requests, err := client.KommitV1alpha1().CommitRequests("team").List(t.Context(), metav1.ListOptions{}); err != nil || len(requests.Items) != 0 {
		t.Errorf("stored are %+v, %v, want none", requests, err)
	}

	created := createProvider(t, client, "meanwhile", "https://git.example.com/a.git")
	if event := <-events.ResultChan(); event.Object == nil || event.Object.(metav1.Object).GetUID() != created.GetUID() {
		t.Errorf("the watch saw %+v, want what was created", event)
	}
	if response, body := server.send(t, "admin", http.MethodPost, AuditPath, "application/json", auditOfAnUpdate); response.StatusCode != http.StatusForbidden {
		t.Errorf("audit events by admin: %d %s", response.StatusCode, body)
	}
	if response, body := server.send(t, "system:kube-apiserver", http.MethodPost, AuditPath, "application/json", auditOfAnUpdate); response.StatusCode != http.StatusOK {
		t.Errorf("audit events: %d %s, want them taken", response.StatusCode, body)
	}

	server.flushing.Unlock()
	server.stop()
	if event, open := <-events.ResultChan(); open {
		t.Errorf("the watch saw %+v, want its end", event)
	}
	kept := 0
	if err := newFactLog(openFacts(t, server.options.StorageFile)).log.Replay(time.Now(), func(_ time.Time, record []byte) error {
		var facts []json.RawMessage
		kept++
		return json.Unmarshal(record, &facts)
	}); err != nil || kept != 1 {
		t.Errorf("%d records of facts are on disk, %v, want one", kept, err)
	}
}

// send sends one request and returns the answer, its body read.
func (s *runningServer) send(t *testing.T, name, method, path, contentType, body string) (*http.Response, []byte) {
	t.Helper()
	client, err := rest.HTTPClientFor(s.as(name))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response, content
}

// The journal is written until what appends to it has ended, and what hangs does not
// keep the rest from the disk.
func TestTheJournalIsWrittenToItsEnd(t *testing.T) {
	for _, test := range []struct {
		name string
		// takes is how long a part goes on after the server.
		takes time.Duration
		ended bool
		rows  string
	}{
		{"a part that ends at once", 0, true, "early late"},
		{"a part that takes a while", partsTimeout - time.Second, true, "early late"},
		{"a part that hangs", time.Hour, false, "early"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, err := bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "kommit.db")})
				if err != nil {
					t.Fatal(err)
				}
				rows := journal.NewRows(db, "test")
				writer := journal.NewWriter(rows)
				serving, stop := context.WithCancel(t.Context())
				var r running
				if err := r.begin(func() error {
					r.write(t.Context(), writer)
					r.parts.Go(func() {
						<-serving.Done()
						writer.Append(journal.Put("early", nil))
						time.Sleep(test.takes)
						writer.Append(journal.Put("late", nil))
					})
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				stop()
				if ended := r.end(partsTimeout); ended != test.ended {
					t.Errorf("all parts have ended: %t, want %t", ended, test.ended)
				}
				var found []string
				if err := rows.Scan(t.Context(), "", func(key string, _ []byte) error {
					found = append(found, key)
					return nil
				}); err != nil || strings.Join(found, " ") != test.rows {
					t.Errorf("on disk are %q, %v, want %s", found, err, test.rows)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
				if err := r.begin(func() error { t.Error("something begins after the end"); return nil }); err != nil {
					t.Error(err)
				}
				time.Sleep(test.takes) // what hangs appends after all, and harms nothing
			})
		})
	}
}
