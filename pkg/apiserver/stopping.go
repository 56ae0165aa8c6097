// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/pkg/journal"
)

// partsTimeout bounds the wait for what is under way when the server has stopped:
// each part ends by itself at once, unless it hangs.
const partsTimeout = 5 * time.Second

// flush has what is in the windows committed and pushed, and the requests told, once
// the delay is over: until then edits come in with their authors as ever, and saves
// that were accepted before the stop get to their windows.
func (s *saving) flush(ctx context.Context) {
	logger := klog.FromContext(ctx)
	<-time.After(s.options.ShutdownDelay)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.options.FlushTimeout)
	defer cancel()
	if err := s.pool.Shutdown(ctx); err != nil {
		logger.Error(err, "Not all is pushed and told: it waits in the journal for the next start", "after", time.Since(began))
		return
	}
	logger.Info("All windows are pushed", "after", time.Since(began))
}

// stop ends what start began. When it returns, nothing of it writes to the storage
// file, and the journal is there as far as the disk took it. The server has stopped.
func (s *saving) stop(ctx context.Context) {
	logger := klog.FromContext(ctx)
	if !s.running.end(partsTimeout) {
		logger.Info("Something did not end with the server: what it still does is not in the journal, and done again after the next start")
	}
	// The writer has ended: either all is on disk or it will not be.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.rows.Sync(ended); err != nil {
		logger.Error(err, "The end of the journal is not on disk: what it tells of is done again after the next start")
	}
}

// running is what start has begun. The journal is written until nothing else runs.
type running struct {
	mu sync.Mutex
	// ended: nothing is begun any more.
	ended bool
	// parts append to the journal.
	parts sync.WaitGroup
	// endWriter has the writer write what is left, and waits for it. nil when none runs.
	endWriter func()
}

// begin has f begin things, unless the end came first.
func (r *running) begin(f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil
	}
	return f()
}

// write runs the writer. Caller is in begin.
func (r *running) write(ctx context.Context, rows *journal.Writer) {
	ctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() { rows.Run(ctx) })
	r.endWriter = func() {
		cancel()
		writer.Wait()
	}
}

// end waits until the parts have ended, no longer than patience, and says whether
// they have; and then for the last write of the journal.
func (r *running) end(patience time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	parts := make(chan struct{})
	go func() {
		r.parts.Wait()
		close(parts)
	}()
	ended := true
	select {
	case <-parts:
	case <-time.After(patience):
		ended = false
	}
	if r.endWriter != nil {
		r.endWriter()
	}
	return ended
}
