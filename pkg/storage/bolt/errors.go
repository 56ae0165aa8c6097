// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
)

// The errors below that carry a Status reach a client as they are: 503 or 507,
// never as "not found" or an empty list (D5).

// LockedError says that another process holds the file's lock.
type LockedError struct {
	Path   string
	Waited time.Duration
	// Holder is its process ID, 0 when it cannot be seen from here.
	Holder int
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.Holder > 0 {
		holder = fmt.Sprintf("process %d", e.Holder)
	}
	return fmt.Sprintf("storage file %s is locked by %s (waited %s): one file serves one process, stop the other one first", e.Path, holder, e.Waited)
}

// VersionError says that the file was written by a newer version. The file has
// not been changed.
type VersionError struct {
	Path             string
	Found, Supported uint64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("storage file %s has format %d, this version reads up to %d: run the newer version, or restore a backup made by this one", e.Path, e.Found, e.Supported)
}

// CorruptFileError says that the file cannot be read as a database.
type CorruptFileError struct {
	Path string
	Err  error
}

func (e *CorruptFileError) Error() string {
	return fmt.Sprintf("storage file %s is corrupt: %v: restore a backup", e.Path, e.Err)
}

// Unwrap returns what was found.
func (e *CorruptFileError) Unwrap() error { return e.Err }

// Status implements apierrors.APIStatus.
func (e *CorruptFileError) Status() metav1.Status {
	return unavailable(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, e)
}

// DiskFullError says that a write, or a snapshot, did not fit on the disk and was
// not made. Reads go on, and writes do once there is space.
type DiskFullError struct {
	Path string
	Err  error
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("the disk of storage file %s is full: %v: free space on it", e.Path, e.Err)
}

// Unwrap returns the system's error.
func (e *DiskFullError) Unwrap() error { return e.Err }

// Status implements apierrors.APIStatus.
func (e *DiskFullError) Status() metav1.Status {
	return unavailable(http.StatusInsufficientStorage, metav1.StatusReasonUnknown, e)
}

// WriteError says that the disk refused a commit, so that it is unknown whether
// the write will be there after a restart.
type WriteError struct {
	Path string
	Err  error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("storage file %s: commit failed: %v: check the disk, then read the object again", e.Path, e.Err)
}

// Unwrap returns the system's error.
func (e *WriteError) Unwrap() error { return e.Err }

// Status implements apierrors.APIStatus.
func (e *WriteError) Status() metav1.Status {
	return unavailable(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, e)
}

// ClosedError says that the database was closed.
type ClosedError struct{ Path string }

func (e *ClosedError) Error() string {
	return fmt.Sprintf("storage file %s is closed: the server is stopping", e.Path)
}

// Status implements apierrors.APIStatus.
func (e *ClosedError) Status() metav1.Status {
	return unavailable(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, e)
}

var (
	_ apierrors.APIStatus = (*CorruptFileError)(nil)
	_ apierrors.APIStatus = (*DiskFullError)(nil)
	_ apierrors.APIStatus = (*WriteError)(nil)
	_ apierrors.APIStatus = (*ClosedError)(nil)
)

func unavailable(code int32, reason metav1.StatusReason, err error) metav1.Status {
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    code,
		Reason:  reason,
		Message: err.Error(),
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}
}

// commitError types what the disk said.
func commitError(path string, err error) error {
	if isDiskFull(err) {
		return &DiskFullError{Path: path, Err: err}
	}
	return &WriteError{Path: path, Err: err}
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// compactedError says that a revision is no longer in the history.
type compactedError struct{ asked, compacted uint64 }

func (e *compactedError) Error() string {
	return fmt.Sprintf("revision %d is gone, the history starts at %d: list again", e.asked, e.compacted)
}

// futureError says that a revision does not exist yet.
type futureError struct{ asked, current uint64 }

func (e *futureError) Error() string {
	return fmt.Sprintf("revision %d is ahead of the current one, %d", e.asked, e.current)
}

// damage says that something in the file is not what was written. Who reads or
// writes makes a *CorruptFileError of it.
type damage struct{ what string }

func (e *damage) Error() string { return e.what + " is damaged" }

func (db *DB) damaged(err error) error {
	var d *damage
	if errors.As(err, &d) {
		return &CorruptFileError{Path: db.path, Err: err}
	}
	return err
}

// refusal is an operation's answer when it left the transaction untouched: the
// rest of its batch is committed all the same.
type refusal struct{ error }

func (e refusal) Unwrap() error { return e.error }

var (
	errConflict = errors.New("the key is at another revision")
	errExists   = errors.New("the key exists")
)

// Upstream's conformance suite and clients know these sentences.
const (
	expiredList     = "The resourceVersion for the provided list is too old."
	expiredWatch    = "The resourceVersion for the provided watch is too old."
	expiredContinue = "The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list."
)

// listError is what a list answers when its revision cannot be read. from is
// the key that the client wanted to continue at, or "".
func listError(err error, keyPrefix, from string) error {
	var future *futureError
	if errors.As(err, &future) {
		return storage.NewTooLargeResourceVersionError(future.asked, future.current, 0)
	}
	var compacted *compactedError
	if !errors.As(err, &compacted) {
		return err
	}
	if from == "" {
		return apierrors.NewResourceExpired(expiredList)
	}
	// -1 continues at the newest revision; 0 would read as a token without one.
	token, err := storage.EncodeContinue(from, keyPrefix, -1)
	if err != nil {
		return apierrors.NewResourceExpired(expiredList)
	}
	status := apierrors.NewResourceExpired(expiredContinue)
	status.ErrStatus.Continue = token
	return status
}
