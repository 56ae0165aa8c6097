// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recording holds what a real kube-apiserver said, by audit and by watch,
// while users and controllers whose deeds are known changed objects. Tests replay it
// in any order and compare whom attribution names with who it was.
//
// `make update-recordings` records anew, by the program test/recording/record on the
// test control plane.
package recording

import (
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Recording is one run of the script under one audit configuration. All times are
// moved so that the script begins at Epoch; uids are numbered.
type Recording struct {
	// Flags are kube-apiserver's audit webhook flags.
	Flags []string `json:"flags"`
	// Policy is the audit policy.
	Policy string `json:"policy"`
	// Batches are the POSTs to the webhook, in the order of their end.
	Batches []Batch `json:"batches"`
	// Watch is what the watches brought, in the order of each.
	Watch []WatchEvent `json:"watch"`
	// Truth says who made which persisted change. It does not come from audit.
	Truth []Deed `json:"truth"`
}

// Batch is one POST.
type Batch struct {
	Received time.Time `json:"received"`
	// Events are audit.k8s.io/v1 Events, as received but for what is scrubbed.
	Events []json.RawMessage `json:"events"`
}

// WatchEvent is one event of one watch.
type WatchEvent struct {
	Received time.Time                   `json:"received"`
	Resource schema.GroupVersionResource `json:"resource"`
	// Type is ADDED, MODIFIED or DELETED.
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Deed is one persisted change and who made it.
type Deed struct {
	// Case names the operation of the script.
	Case string `json:"case"`
	// Author is the user; for controllers that of their service account.
	Author string `json:"author"`
	UID    string `json:"uid"`
	// ResourceVersion is empty for the request to delete the object.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Scripted says that a user of the script did it, not a controller.
	Scripted bool `json:"scripted,omitempty"`
	// Intent says that it changed what Git keeps, so that it must be captured.
	Intent bool `json:"intent,omitempty"`
}

// Epoch is when the script of each recording begins.
var Epoch = time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)

//go:embed testdata/*.json.gz
var files embed.FS

// NotRecordedError says that there is no recording of a name.
type NotRecordedError struct{ Name string }

func (e *NotRecordedError) Error() string {
	return fmt.Sprintf("there is no recording %q: run make update-recordings", e.Name)
}

// Open reads a recording of the tree. An unknown name is a *NotRecordedError.
func Open(name string) (*Recording, error) {
	f, err := files.Open(path.Join("testdata", name+".json.gz"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotRecordedError{Name: name}
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only, and in memory
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("recording %s: %w", name, err)
	}
	r := &Recording{}
	if err := json.NewDecoder(z).Decode(r); err != nil {
		return nil, fmt.Errorf("recording %s: %w", name, err)
	}
	return r, nil
}

// Write writes the recording. The same recording always gives the same bytes.
func (r *Recording) Write(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(r); err != nil {
		return err
	}
	return z.Close()
}
