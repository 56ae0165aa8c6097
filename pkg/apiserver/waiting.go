// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

const (
	// openingPatience is how long opening the storage file may take before requests
	// are answered meanwhile.
	openingPatience = time.Second
	// lockedPause and unusablePause are between two attempts to open the file: one
	// that another process has, and one that somebody must put right. Each attempt
	// reads all of the file, but a new file in its place is seen at the next look.
	lockedPause   = 250 * time.Millisecond
	unusablePause = 30 * time.Second
	lookPause     = 500 * time.Millisecond
	// repeatAfter is when the log says again why the server waits.
	repeatAfter = time.Minute
	// answerTimeout bounds how long answers under way are waited for.
	answerTimeout = time.Second
)

// outage is why the storage file cannot be used, and what helps. Anybody may read
// it, so that no path, page or process is in it: those are in the log.
type outage struct {
	message string
	// pause until the next attempt.
	pause time.Duration
}

func (o *outage) Error() string { return "storage is not available: " + o.message }

// Status implements apierrors.APIStatus.
func (o *outage) Status() metav1.Status {
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusServiceUnavailable,
		Reason:  metav1.StatusReasonServiceUnavailable,
		Message: o.Error(),
		Details: &metav1.StatusDetails{RetryAfterSeconds: int32(min(max(1, o.pause/time.Second), 5))},
	}
}

var (
	errLocked  = &outage{"another process has its file, and this one takes over when that one stops", lockedPause}
	errCorrupt = &outage{"its file is corrupt, and an operator must put a restored backup in its place", unusablePause}
	errNewer   = &outage{"its file is of a newer version, and an operator must run that version, or put a restored backup of this one in its place", unusablePause}
	errGone    = &outage{"its file was taken away, and an operator must put a restored backup in its place, or restart to begin with none", unusablePause}
	errFull    = &outage{"its disk is full, and an operator must free space on it", unusablePause}
)

// outageOf is nil for an error that waiting does not help with.
func outageOf(err error) *outage {
	switch {
	case errors.As(err, new(*bolt.LockedError)):
		return errLocked
	case errors.As(err, new(*bolt.CorruptFileError)):
		return errCorrupt
	case errors.As(err, new(*bolt.VersionError)):
		return errNewer
	case errors.As(err, new(*bolt.DiskFullError)):
		return errFull
	case errors.Is(err, errGone):
		return errGone
	}
	return nil
}

// waiting stands in for the server while the storage file cannot be opened: it
// answers 503 to all but probes, and is alive but not ready (D5).
type waiting struct {
	path string
	open func() (*bolt.DB, error)
	now  atomic.Pointer[outage]
}

var _ http.Handler = (*waiting)(nil)

func newWaiting(path string, open func() (*bolt.DB, error)) *waiting {
	w := &waiting{path: path, open: open}
	w.now.Store(&outage{message: "its file is being opened and checked"})
	return w
}

// untilOpen opens the file, as often as it takes. failed is called after each
// attempt. It returns ctx's error when that ends first, and the one of opening
// when waiting does not help.
func (w *waiting) untilOpen(ctx context.Context, failed func()) (*bolt.DB, error) {
	logger := klog.FromContext(ctx).WithValues("file", w.path)
	var said *outage
	var at time.Time
	for {
		tried := look(w.path)
		db, err := w.attempt(said != nil && tried == nil)
		if ended := ctx.Err(); ended != nil {
			if err == nil {
				err = db.Close()
			}
			return nil, errors.Join(ended, err)
		}
		if err == nil {
			if said != nil {
				logger.Info("Storage is available")
			}
			return db, nil
		}
		o := outageOf(err)
		if o == nil {
			return nil, err
		}
		w.now.Store(o)
		failed()
		if o != said || time.Since(at) >= repeatAfter {
			said, at = o, time.Now()
			logger.Error(err, "Storage is not available, requests are answered with 503 until it is")
		}
		w.sleep(ctx, o.pause, tried)
	}
}

// attempt opens the file, and makes one where there was none from the start. One
// that is gone since is about to be replaced: an empty one would take its place,
// and every object and resourceVersion would be lost to clients.
func (w *waiting) attempt(gone bool) (*bolt.DB, error) {
	if gone {
		return nil, fmt.Errorf("%s: %w", w.path, errGone)
	}
	return w.open()
}

// sleep returns when the next attempt is due: after pause, or earlier if the file
// is not the one that was tried and has come to rest, or when ctx ends.
func (w *waiting) sleep(ctx context.Context, pause time.Duration, tried os.FileInfo) {
	due := time.NewTimer(pause)
	defer due.Stop()
	again := time.NewTicker(lookPause)
	defer again.Stop()
	for last := tried; ; {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
			return
		case <-again.C:
			now := look(w.path)
			if same(now, last) && !same(now, tried) {
				return
			}
			last = now
		}
	}
}

// look is nil when there is no file.
func look(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// ServeHTTP implements http.Handler.
func (w *waiting) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	now := w.now.Load()
	header := rw.Header()
	header.Set("Connection", "close") // the next request may be for the server that comes
	header.Set("Cache-Control", "no-cache, private")
	if !isProbe(r.URL.Path) {
		writeStatus(rw, now.Status())
		return
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	if strings.HasPrefix(r.URL.Path, "/livez") {
		fmt.Fprint(rw, "ok")
		return
	}
	rw.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintf(rw, "[-]storage failed: %s\n", now.Error())
}

// openStorage returns the open file. While that takes, requests are answered at
// the server's port. The listener stays open for the server that comes next, so
// that no connection is refused in between; those made meanwhile wait for it.
func openStorage(ctx context.Context, w *waiting, serving *genericoptions.SecureServingOptions) (*bolt.DB, error) {
	type opened struct {
		db  *bolt.DB
		err error
	}
	done, failed := make(chan opened, 1), make(chan struct{}, 1)
	go func() {
		db, err := w.untilOpen(ctx, func() {
			select {
			case failed <- struct{}{}:
			default:
			}
		})
		done <- opened{db, err}
	}()
	select {
	case o := <-done:
		return o.db, o.err
	case <-failed:
	case <-time.After(openingPatience):
	}
	stop, err := serveMeanwhile(w, serving)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Requests cannot be answered while storage is not available")
		stop = func() error { return nil }
	}
	o := <-done
	if err := stop(); err != nil {
		if o.db != nil {
			err = errors.Join(err, o.db.Close())
		}
		return nil, errors.Join(o.err, err)
	}
	return o.db, o.err
}

// serveMeanwhile serves handler at the port of serving, until stop.
func serveMeanwhile(handler http.Handler, serving *genericoptions.SecureServingOptions) (stop func() error, err error) {
	// Certificates are read again by what reads them for one server only.
	var info *genericapiserver.SecureServingInfo
	if err := serving.ApplyTo(&info); err != nil {
		return nil, err
	}
	lent, err := lend(info.Listener)
	if err != nil {
		return nil, err
	}
	info.Listener = lent
	end := make(chan struct{})
	answered, listenerReturned, err := info.Serve(handler, answerTimeout, end)
	if err != nil {
		return nil, err
	}
	return func() error {
		close(end)
		<-listenerReturned
		<-answered
		return lent.takeBack()
	}, nil
}

// lentListener can be closed by a server without closing what is behind it.
type lentListener struct {
	net.Listener

	setDeadline func(time.Time) error
}

func lend(l net.Listener) (*lentListener, error) {
	d, ok := l.(interface{ SetDeadline(t time.Time) error })
	if !ok {
		return nil, fmt.Errorf("listener at %s has no deadlines: %T", l.Addr(), l)
	}
	return &lentListener{Listener: l, setDeadline: d.SetDeadline}, nil
}

// Close ends Accept, as that of a listener does.
func (l *lentListener) Close() error { return l.setDeadline(time.Unix(0, 1)) }

// takeBack makes the listener accept again.
func (l *lentListener) takeBack() error { return l.setDeadline(time.Time{}) }
