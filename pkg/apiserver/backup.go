// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

// BackupPath answers with a consistent copy of the storage file: a non-resource
// URL that needs `get`. Who may have it may read every object of kommit.dev.
const BackupPath = "/storage/backup"

const (
	// backupChunk is what is sent at a time, each within backupStall.
	backupChunk = 1 << 20
	backupStall = time.Minute
)

// snapshotter makes what a backup consists of.
type snapshotter interface {
	Snapshot() (*os.File, error)
}

// backups answers BackupPath, one request at a time: each takes the space of the
// storage file. The snapshot is on disk before any of it is sent, so that a slow
// client holds up no writer (D5), and one that takes nothing for a minute is cut off.
type backups struct {
	storage  snapshotter
	stopping <-chan struct{} // a backup under way is cut short then
	stall    time.Duration
	slot     chan struct{}
}

var _ http.Handler = (*backups)(nil)

func newBackups(storage snapshotter, stopping <-chan struct{}) *backups {
	return &backups{storage: storage, stopping: stopping, stall: backupStall, slot: make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (b *backups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		writeStatus(w, metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: BackupPath + " answers GET only",
		})
		return
	}
	select {
	case b.slot <- struct{}{}:
		defer func() { <-b.slot }()
	default:
		writeStatus(w, apierrors.NewTooManyRequests("a backup is under way, and there is one at a time", 10).Status())
		return
	}
	logger := klog.FromContext(r.Context())
	caller, ok := genericapirequest.UserFrom(r.Context())
	if !ok {
		caller = &user.DefaultInfo{}
	}
	logger = logger.WithValues("user", caller.GetName())

	snapshot, err := b.storage.Snapshot()
	if err != nil {
		logger.Error(err, "No backup was made")
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		writeStatus(w, status.Status())
		return
	}
	defer func() { _ = snapshot.Close() }() // it has no name, and nothing was written since
	if err := b.send(w, snapshot); err != nil {
		logger.Error(err, "A backup was not sent to its end")
		panic(http.ErrAbortHandler) //nolint:forbidigo // the answer began as a good one: only a broken connection says that it is not
	}
	logger.Info("A backup was sent")
}

func (b *backups) send(w http.ResponseWriter, snapshot *os.File) error {
	info, err := snapshot.Stat()
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	header.Set("Cache-Control", "no-store")
	controller := http.NewResponseController(w)
	for left := info.Size(); left > 0; {
		select {
		case <-b.stopping:
			return errors.New("the server is stopping")
		default:
		}
		if err := controller.SetWriteDeadline(time.Now().Add(b.stall)); err != nil {
			return err
		}
		sent, err := io.CopyN(w, snapshot, min(left, backupChunk))
		if err != nil {
			return err
		}
		left -= sent
	}
	return controller.Flush()
}
