// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/pkg/attribution"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

const auditOfAnUpdate = `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{
	"level":"RequestResponse","auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/configmaps/a","verb":"update",
	"user":{"username":"alice"},"objectRef":{"resource":"configmaps","namespace":"shop","name":"a","apiVersion":"v1"},"responseStatus":{"code":200},
	"requestObject":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"s3cret"}},
	"responseObject":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"u1","resourceVersion":"7"},"data":{"k":"s3cret"}},
	"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.100000Z"}]}`

// postAudit posts the update to an endpoint whose facts are kept in the file.
func postAudit(t *testing.T, db *bolt.DB) int {
	t.Helper()
	facts := attribution.NewFacts(attribution.FactsConfig{Keeper: newFactLog(db)})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, AuditPath, strings.NewReader(auditOfAnUpdate))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	attribution.NewHandler(facts, attribution.HandlerConfig{}).ServeHTTP(answer, request)
	return answer.Code
}

func openFacts(t *testing.T, path string) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(t.Context(), bolt.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// C5, D1: what was answered 200 is known to the next process, and is not what is to
// be kept out of the file.
func TestC5FactsSurviveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db := openFacts(t, path)
	if code := postAudit(t, db); code != http.StatusOK {
		t.Fatalf("answered %d", code)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	db = openFacts(t, path)
	facts := attribution.NewFacts(attribution.FactsConfig{})
	if err := newFactLog(db).restore(time.Now(), facts); err != nil {
		t.Fatal(err)
	}
	version := attribution.Version{UID: "u1", ResourceVersion: "7", Resource: "configmaps", Namespace: "shop", Name: "a", Seen: time.Date(2026, 1, 2, 3, 4, 5, 50_000_000, time.UTC)}
	if username, ok := facts.Find(version); !ok || username != "alice" {
		t.Errorf("the version is %q's (%t), want alice's", username, ok)
	}
	if err := newFactLog(db).log.Replay(time.Now(), func(_ time.Time, record []byte) error {
		if strings.Contains(string(record), "s3cret") {
			t.Errorf("the content of an object is on disk: %s", record)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	late := attribution.NewFacts(attribution.FactsConfig{})
	if err := newFactLog(db).restore(time.Now().Add(attribution.DefaultTTL), late); err != nil {
		t.Fatal(err)
	}
	if username, ok := late.Find(version); ok {
		t.Errorf("a fact out of time names %q", username)
	}
}

// C5: what is not on disk is not answered 200, so that it is sent again.
func TestC5FactsThatCannotBeKeptAreAskedForAgain(t *testing.T) {
	db := openFacts(t, filepath.Join(t.TempDir(), "kommit.db"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if code := postAudit(t, db); code != http.StatusServiceUnavailable {
		t.Errorf("answered %d, want 503", code)
	}
}
