// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/pkg/failpoint"
)

const (
	// maxQueued is how many bytes may wait to be written before Room makes callers
	// wait.
	maxQueued = 64 << 20
	// maxCommit is about how many bytes one commit holds, so that what waits for the
	// first of many is not kept waiting by all.
	maxCommit = 8 << 20
	// stepOverhead counts for each step besides its key and value.
	stepOverhead = 64
	// The waits between attempts to write what could not be written.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// Writer writes rows behind its callers' backs, in the order in which they were
// appended, many appends in one commit (D4). So what is on disk is always a prefix of
// what was appended: after a crash nothing is missing in between. Who is about to do
// what others can see waits for Sync first.
//
// What cannot be written, because the disk is full, say, is tried again until it can.
// Safe for concurrent use.
type Writer struct {
	rows Rows

	mu sync.Mutex
	// queue are the appends that are not written yet, oldest first.
	queue []appended
	bytes int
	// taken counts the appends, written those that are on disk.
	taken, written uint64
	// failure is why the last commit failed; nil while all goes well.
	failure error
	// wake has one slot: there is something to write.
	wake chan struct{}
	// moved is closed, and made anew, when something was written.
	moved chan struct{}
}

// appended is what one call appended; it is written as a whole.
type appended struct {
	steps []Step
	bytes int
}

// NewWriter returns a Writer that writes nothing until Run.
func NewWriter(rows Rows) *Writer {
	return &Writer{rows: rows, wake: make(chan struct{}, 1), moved: make(chan struct{})}
}

// Append has steps written, all of them in one commit, after all that was appended
// before. It returns at once.
func (w *Writer) Append(steps ...Step) {
	if len(steps) == 0 {
		return
	}
	a := appended{steps: steps}
	for _, step := range steps {
		a.bytes += len(step.key) + len(step.value) + stepOverhead
	}
	w.mu.Lock()
	w.queue = append(w.queue, a)
	w.bytes += a.bytes
	w.taken++
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Sync returns when all that was appended before the call is on disk. The error is
// that of ctx, with why nothing could be written.
func (w *Writer) Sync(ctx context.Context) error {
	w.mu.Lock()
	target := w.taken
	w.mu.Unlock()
	return w.until(ctx, func() bool { return w.written >= target })
}

// Room returns when not too much waits to be written: who has much to append calls it
// before, and is slowed down to what the disk can take. Errors are as of Sync.
func (w *Writer) Room(ctx context.Context) error {
	return w.until(ctx, func() bool { return w.bytes < maxQueued })
}

// until waits for a condition, which is asked with mu held.
func (w *Writer) until(ctx context.Context, met func() bool) error {
	for {
		w.mu.Lock()
		moved, ok := w.moved, met()
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.failure != nil {
				return fmt.Errorf("the journal cannot be written: %w: %w", w.failure, ctx.Err())
			}
			return fmt.Errorf("the journal is not written yet: %w", ctx.Err())
		}
	}
}

// Scan is Rows.Scan of what is on disk.
func (w *Writer) Scan(ctx context.Context, prefix string, f func(key string, value []byte) error) error {
	return w.rows.Scan(ctx, prefix, f)
}

// Run writes until ctx ends, and then once more what is left.
func (w *Writer) Run(ctx context.Context) {
	for retry := firstRetry; ; {
		ended := ctx.Err() != nil // asked before: what was appended until then is written
		more, err := w.commit(ctx)
		switch {
		case err == nil && more:
			retry = firstRetry
		case ended:
			return
		case err != nil:
			select {
			case <-time.After(retry):
			case <-ctx.Done():
			}
			retry = min(2*retry, lastRetry)
		default:
			select {
			case <-w.wake:
			case <-ctx.Done():
			}
		}
	}
}

// commit writes the oldest appends, and says whether there were any.
func (w *Writer) commit(ctx context.Context) (any bool, err error) {
	w.mu.Lock()
	var steps []Step
	n, bytes := 0, 0
	for ; n < len(w.queue) && bytes < maxCommit; n++ {
		steps = append(steps, w.queue[n].steps...)
		bytes += w.queue[n].bytes
	}
	w.mu.Unlock()
	if n == 0 {
		return false, nil
	}

	failpoint.Hit(failpoint.JournalCommitBefore)
	err = w.rows.Commit(context.WithoutCancel(ctx), steps) // the last one, too
	failpoint.Hit(failpoint.JournalCommitAfter)
	w.mu.Lock()
	defer w.mu.Unlock()
	failed := w.failure != nil
	w.failure = err
	if err != nil {
		if !failed {
			klog.FromContext(ctx).Error(err, "The journal cannot be written, trying again; nothing is pushed meanwhile")
		}
		return true, err
	}
	if failed {
		klog.FromContext(ctx).Info("The journal is written again")
	}
	clear(w.queue[:n]) // what was written is not kept by the slice
	w.queue = w.queue[n:]
	w.bytes -= bytes
	w.written += uint64(n)
	close(w.moved)
	w.moved = make(chan struct{})
	return true, nil
}
