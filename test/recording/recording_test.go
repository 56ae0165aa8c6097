// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"testing"
	"time"
)

// TestRecordingsAreFitForTheTree: nothing secret in them, and not much of anything.
func TestRecordingsAreFitForTheTree(t *testing.T) {
	names, err := fs.Glob(files, "testdata/*.json.gz")
	if err != nil || len(names) == 0 {
		t.Fatalf("recordings: %q, %v", names, err)
	}
	total := 0
	for _, name := range names {
		packed, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		total += len(packed)
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if found := secret.Find(text); found != nil {
			t.Errorf("%s holds %q", name, found)
		}
	}
	if total > 1<<20 {
		t.Errorf("all recordings have %d bytes, more than 1 MiB", total)
	}
}

func TestScrub(t *testing.T) {
	began := time.Date(2031, 5, 6, 7, 8, 9, 250_000_000, time.UTC)
	event := func(text string) *Recording {
		return &Recording{Batches: []Batch{{Received: began.Add(time.Second), Events: []json.RawMessage{json.RawMessage(text)}}}}
	}
	r := event(`{"b":"2031-05-06T07:08:10.5Z","a":["2031-05-06T07:08:09Z","9fbd61f2-0f2e-4e3b-8f0a-0f4f6a0c1d2e"],` +
		`"ca":"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n","id":"X509SHA256=0a1b","n":1.50}`)
	r.Truth = []Deed{{UID: "9fbd61f2-0f2e-4e3b-8f0a-0f4f6a0c1d2e"}}
	if err := r.Scrub(began); err != nil {
		t.Fatal(err)
	}
	const uid = "00000000-0000-4000-8000-000000000001"
	want := `{"b":"2000-01-01T01:00:01.5Z","a":["2000-01-01T01:00:00Z","` + uid + `"],"ca":"(certificate)","id":"X509SHA256=0","n":1.50}`
	if got := string(r.Batches[0].Events[0]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if at := r.Batches[0].Received; !at.Equal(Epoch.Add(1250 * time.Millisecond)) {
		t.Errorf("received at %v", at)
	}
	if r.Truth[0].UID != uid {
		t.Errorf("the truth is about %s", r.Truth[0].UID)
	}
	var leak *SecretError
	if err := event(`{"token":"eyJhbGciOiJSUzI1NiJ9.x.y"}`).Scrub(began); !errors.As(err, &leak) {
		t.Errorf("a token: got %v", err)
	}
}

func TestUnknownRecording(t *testing.T) {
	var unknown *NotRecordedError
	if _, err := Open("none"); !errors.As(err, &unknown) || unknown.Name != "none" {
		t.Errorf("got %v", err)
	}
}
