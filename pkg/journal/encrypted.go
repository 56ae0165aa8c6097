// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/storage/value"
)

// encryptedRows keeps values as a transformer makes them.
type encryptedRows struct {
	rows        Rows
	transformer value.Transformer
}

var _ Rows = encryptedRows{}

// NewEncryptedRows returns rows whose values are on disk as the transformer makes
// them, bound to their keys. Keys are not encrypted. Besides those of rows, errors are
// a *TransformError, which ends a Scan: a key that is not to be had now may be later.
func NewEncryptedRows(rows Rows, transformer value.Transformer) Rows {
	return encryptedRows{rows: rows, transformer: transformer}
}

// TransformError says that a value could not be encrypted or decrypted.
type TransformError struct {
	Key string
	Err error
}

func (e *TransformError) Error() string {
	return fmt.Sprintf("row %q of the journal: %v", e.Key, e.Err)
}

// Unwrap returns the cause.
func (e *TransformError) Unwrap() error { return e.Err }

// Commit implements Rows.
func (r encryptedRows) Commit(ctx context.Context, steps []Step) error {
	steps = slices.Clone(steps)
	for i := range steps {
		step := &steps[i]
		if step.operation != put {
			continue
		}
		encrypted, err := r.transformer.TransformToStorage(ctx, step.value, value.DefaultContext(step.key))
		if err != nil {
			return &TransformError{Key: step.key, Err: err}
		}
		step.value = encrypted
	}
	return r.rows.Commit(ctx, steps)
}

// Scan implements Rows.
func (r encryptedRows) Scan(ctx context.Context, prefix string, f func(key string, value []byte) error) error {
	return r.rows.Scan(ctx, prefix, func(key string, encrypted []byte) error {
		decrypted, _, err := r.transformer.TransformFromStorage(ctx, encrypted, value.DefaultContext(key))
		if err != nil {
			return &TransformError{Key: key, Err: err}
		}
		return f(key, decrypted)
	})
}
