// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"bytes"
	"crypto/aes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"

	"github.com/kommit-dev/kommit/pkg/journal"
)

// What is encrypted at rest is so in the journal, too, and a value is no other row's.
func TestEncryptedRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	db := open(t, path)
	block, err := aes.NewCipher(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	transformer, err := aestransformer.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
	plain := journal.NewRows(db, "saving")
	rows := journal.NewEncryptedRows(plain, transformer)
	steps := []journal.Step{journal.Put("request/1", []byte("a message that nobody may read")), journal.Put("request/2", nil), journal.Delete("request/3")}
	if err := rows.Commit(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	wantRows(t, scanned(t, rows, "request/"), map[string]string{"request/1": "a message that nobody may read", "request/2": ""})
	if err := plain.Commit(t.Context(), []journal.Step{journal.Put("request/2", []byte(scanned(t, plain, "request/1")["request/1"]))}); err != nil {
		t.Fatal(err)
	}
	err = rows.Scan(t.Context(), "request/2", func(string, []byte) error { return nil })
	if moved, ok := errors.AsType[*journal.TransformError](err); !ok || moved.Key != "request/2" {
		t.Errorf("got %v, want a *TransformError: the value is another row's", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(file, []byte("nobody may read")) {
		t.Error("the message is in the file in the clear")
	}
}
