// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
)

// Corruption says in which step an object could not be read.
type Corruption string

const (
	untransformable Corruption = "data from the storage is not transformable"
	undecodable     Corruption = "object not decodable"
	altered         Corruption = "data in the storage is not what was written"
)

// CorruptObjectError says that one stored object cannot be read: it is not what
// was written, it cannot be decrypted, or not decoded. It is what makes the object
// a candidate for unsafe deletion
// (ignoreStoreReadErrorWithClusterBreakingPotential).
type CorruptObjectError struct {
	Corruption Corruption
	Revision   uint64 // 0: not known
	Err        error
}

func (e *CorruptObjectError) Error() string {
	return fmt.Sprintf("%s revision=%d: %v", e.Corruption, e.Revision, e.Err)
}

// Unwrap returns the cause.
func (e *CorruptObjectError) Unwrap() error { return e.Err }

// UnmappedError says that the system refused the memory to map the file after it
// had grown. Nothing can be read or written until the server is started again.
type UnmappedError struct{ Path string }

func (e *UnmappedError) Error() string {
	return fmt.Sprintf("storage file %s is not mapped into memory any more: allow the process more address space and restart it", e.Path)
}

// Status implements apierrors.APIStatus.
func (e *UnmappedError) Status() metav1.Status {
	return unavailable(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, e)
}

var _ apierrors.APIStatus = (*UnmappedError)(nil)

var errChecksum = errors.New("its checksum does not match")

// intact answers for a value that does not match its checksum, which is handed
// on as nil. The rest of the file is readable, so the error is about one object.
func (s *store) intact(value []byte, rev uint64) error {
	switch {
	case value != nil:
		return nil
	case s.unsafeDeletion:
		return &CorruptObjectError{Corruption: altered, Revision: rev, Err: errChecksum}
	}
	return &CorruptFileError{Path: s.resource.db.path, Err: fmt.Errorf("%s revision=%d: %w", altered, rev, errChecksum)}
}

// corruption types err where the feature gate AllowUnsafeMalformedObjectDeletion
// asks for it.
func (s *store) corruption(c Corruption, rev uint64, err error) error {
	if !s.unsafeDeletion || err == nil {
		return err
	}
	return &CorruptObjectError{Corruption: c, Revision: rev, Err: err}
}

// corruptionTransformer types what a transformer cannot read.
type corruptionTransformer struct{ value.Transformer }

func (t corruptionTransformer) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	out, stale, err := t.Transformer.TransformFromStorage(ctx, data, dataCtx)
	if err != nil {
		return nil, false, &CorruptObjectError{Corruption: untransformable, Err: err}
	}
	return out, stale, nil
}

// readError is what Get answers for err.
func (s *store) readError(key string, err error) error {
	var corrupt *CorruptObjectError
	if s.unsafeDeletion && errors.As(err, &corrupt) {
		return storage.NewCorruptObjError(key, corrupt)
	}
	return err
}

// maxListedCorruptions is how many corrupt objects one list names.
const maxListedCorruptions = 100

// corruptions collects the corrupt objects of one list, so that an operator
// learns of all of them at once. Without the feature gate, and for any other
// error, the first one ends the list.
type corruptions struct {
	collect bool
	found   []*storage.StorageError
	abort   error
	full    bool
}

// add reports whether the list ends here.
func (c *corruptions) add(key string, err error) (end bool) {
	var corrupt *CorruptObjectError
	if !c.collect || !errors.As(err, &corrupt) {
		c.abort = err
		return true
	}
	c.found = append(c.found, storage.NewCorruptObjError(key, corrupt))
	c.full = len(c.found) >= maxListedCorruptions
	return c.full
}

// err is what the list answers.
func (c *corruptions) err(gr schema.GroupResource) error {
	if len(c.found) == 0 {
		return c.abort
	}
	var causes []metav1.StatusCause
	for _, e := range c.found {
		causes = append(causes, metav1.StatusCause{
			Type:    metav1.CauseTypeUnexpectedServerResponse,
			Field:   e.Key,
			Message: e.Error(),
		})
	}
	switch {
	case c.full:
		causes = append(causes, metav1.StatusCause{
			Type:    metav1.CauseTypeTooMany,
			Message: "too many errors, the list is truncated",
		})
	case c.abort != nil:
		causes = append(causes, metav1.StatusCause{
			Type:    metav1.CauseTypeUnexpectedServerResponse,
			Message: c.abort.Error(),
		})
	}
	message := fmt.Sprintf("failed to read one or more %s from the storage: %v", gr, c.found[0])
	if more := len(c.found) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonStoreReadError,
		Message: message,
		Details: &metav1.StatusDetails{Group: gr.Group, Kind: gr.Resource, Name: "list", Causes: causes},
	}}
}

// watchError is the Status that ends a watch.
func watchError(err error) *metav1.Status {
	var compacted *compactedError
	if errors.As(err, &compacted) {
		err = apierrors.NewResourceExpired(expiredWatch)
	}
	var deleted *corruptDeletionError
	if errors.As(err, &deleted) {
		return &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusInternalServerError,
			Reason:  metav1.StatusReasonStoreReadError,
			Message: deleted.Error(),
		}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	out := status.Status()
	return &out
}

// corruptDeletionError says that an object is gone whose last state cannot be shown.
type corruptDeletionError struct{ err error }

func (e *corruptDeletionError) Error() string {
	return fmt.Sprintf("saw a DELETED event, but object data is corrupt - %v", e.err)
}

func (e *corruptDeletionError) Unwrap() error { return e.err }
