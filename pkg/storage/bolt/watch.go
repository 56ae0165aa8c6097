// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"
)

const (
	// watchBuffer is how many results wait for a watcher that is not reading.
	watchBuffer = 16
	// watchReadBytes bounds what a watcher that is behind reads from the file
	// at a time.
	watchReadBytes = 1 << 20
	// farewell is how long before the request ends a last bookmark is sent, so
	// that the client reconnects where it was.
	farewell = 2 * time.Second
	// tooLargeRetrySeconds is when a client from the future should come back.
	tooLargeRetrySeconds = 1
)

// watcher is one watch. A goroutine moves cursor over the revisions, decodes and
// sends; it holds no transaction while doing so, and nobody waits for it. It is
// there only while there is something to do: a stack is most of what an idle
// watcher would hold.
type watcher struct {
	s         *store
	key       string
	recursive bool
	pred      storage.SelectionPredicate
	times     bool // wrap events with the time of their decoding

	initial    bool // send the state at cursor first
	initialEnd bool // then the bookmark that says so
	progress   bool // a bookmark whenever one is requested
	bookmarks  bool // and at intervals
	goodbye    time.Time

	// Of the goroutine, one after the other.
	refused       error  // why there is nothing to watch
	cursor        uint64 // everything up to here has been sent
	lastRequested uint64
	timer         *time.Timer // of the next bookmark

	wakes    atomic.Int64 // 0: no goroutine
	due      atomic.Bool  // timer has fired
	ctx      context.Context
	unhook   func() bool // from ctx
	stop     chan struct{}
	stopOnce sync.Once
	results  chan watch.Event
}

var _ watch.Interface = (*watcher)(nil)

// Watch implements storage.Interface. The revision it starts at is fixed here,
// not in the goroutine: what is written after Watch returned is delivered.
func (s *store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	prepared, err := s.prepareKey(key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	rev, err := s.versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if opts.ProgressNotify && s.newFunc == nil {
		return nil, apierrors.NewInternalError(errors.New("progressNotify for watch needs a constructor of the object"))
	}
	watchList := utilfeature.DefaultFeatureGate.Enabled(features.WatchList)
	sendInitial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	bookmarks := opts.Predicate.AllowWatchBookmarks && s.newFunc != nil
	w := &watcher{
		s:          s,
		key:        prepared,
		recursive:  opts.Recursive,
		pred:       opts.Predicate,
		times:      opts.RecordTimestamps,
		initial:    (rev == 0 && (opts.SendInitialEvents == nil || !watchList)) || (watchList && sendInitial),
		initialEnd: watchList && sendInitial && bookmarks,
		progress:   opts.ProgressNotify,
		bookmarks:  opts.ProgressNotify || bookmarks,
		goodbye:    deadline(ctx),
		cursor:     rev,
		ctx:        ctx,
		stop:       make(chan struct{}),
		results:    make(chan watch.Event, watchBuffer),
	}
	if w.pred.Empty() {
		w.pred = storage.Everything
	}
	now := s.resource.feed.since(0)
	w.lastRequested = now.progress
	utilflowcontrol.WatchInitialized(ctx)
	compacted := s.resource.compacted.Load()
	switch {
	case w.initial && rev > now.upTo:
		w.refused = storage.NewTooLargeResourceVersionError(rev, now.upTo, tooLargeRetrySeconds)
	case w.initial || rev == 0:
		w.cursor = now.upTo
	case rev < compacted:
		w.refused = &compactedError{asked: rev, compacted: compacted}
	}
	w.wakes.Store(1) // what wakes it now only counts
	s.resource.feed.join(w)
	w.unhook = context.AfterFunc(ctx, w.wake)
	go w.run()
	return w, nil
}

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.stopOnce.Do(func() { close(w.stop) })
	w.wake()
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

// wake has the watcher look for something to do, after what it is doing. It never
// waits.
func (w *watcher) wake() {
	if w.wakes.Add(1) == 1 {
		go w.run()
	}
}

// run does what there is to do. It may be over while its caller still runs.
func (w *watcher) run() {
	for {
		wakes := w.wakes.Load()
		if err := w.work(); err != nil {
			w.end(err) // and wakes stays: this was the last goroutine
			return
		}
		if w.wakes.CompareAndSwap(wakes, 0) {
			return
		}
	}
}

// end closes the watch, after an error event unless it was asked for.
func (w *watcher) end(err error) {
	defer close(w.results)
	w.s.resource.feed.leave(w)
	w.unhook()
	if w.timer != nil {
		w.timer.Stop()
	}
	var closed *ClosedError
	if errors.Is(err, errStopped) || w.ctx.Err() != nil || errors.As(err, &closed) {
		return
	}
	klog.FromContext(w.ctx).V(2).Info("Watch ends", "key", w.key, "resource", w.s.groupResource, "err", err)
	w.send(watch.Event{Type: watch.Error, Object: watchError(err)})
}

// send reports whether the watch goes on.
func (w *watcher) send(e watch.Event) bool {
	select {
	case w.results <- e:
		return true
	case <-w.ctx.Done():
		return false
	case <-w.stop:
		return false
	case <-w.s.resource.db.closing:
		return false
	}
}

func (w *watcher) stopped() bool {
	select {
	case <-w.ctx.Done():
	case <-w.stop:
	case <-w.s.resource.db.closing:
	default:
		return false
	}
	return true
}

// errStopped ends a watch without an error event: it was stopped, or its request
// or the database has ended.
var errStopped = errors.New("the watch was stopped")

// sendInitial sends the objects as they were at the cursor, in key order.
func (w *watcher) sendInitial() error {
	if !w.initial {
		return nil
	}
	w.initial = false
	for from := w.key; ; {
		c, err := w.initialChunk(from)
		if err != nil {
			return err
		}
		for _, e := range c.entries {
			obj, err := w.s.restoreEntry(w.ctx, e)
			if err != nil {
				return err
			}
			if w.matches(obj) && !w.send(watch.Event{Type: watch.Added, Object: obj.DeepCopyObject()}) {
				return errStopped
			}
		}
		if !c.more {
			break
		}
		from = c.entries[len(c.entries)-1].key + "\x00"
	}
	if w.initialEnd {
		return w.bookmark(true)
	}
	return nil
}

func (w *watcher) initialChunk(from string) (chunk, error) {
	if w.recursive {
		return w.s.resource.readChunk(from, prefixEnd(w.key), w.cursor, maxChunkItems, false)
	}
	return w.s.resource.readOne(w.key, w.cursor)
}

// work sends what there is to send. An error ends the watch.
func (w *watcher) work() error {
	switch {
	case w.stopped():
		return errStopped
	case w.refused != nil:
		return w.refused
	}
	if err := w.sendInitial(); err != nil {
		return err
	}
	if w.bookmarks && w.timer == nil {
		w.timer = time.AfterFunc(w.untilBookmark(), func() {
			w.due.Store(true)
			w.wake()
		})
	}
	for {
		if w.stopped() {
			return errStopped
		}
		n := w.s.resource.feed.since(w.cursor)
		var err error
		switch {
		case w.cursor < n.upTo:
			err = w.catchUp(n)
		case w.progress && n.progress != w.lastRequested:
			w.lastRequested = n.progress
			err = w.bookmark(false)
		case w.due.Swap(false):
			// A cursor ahead of the store was the client's own claim.
			if w.cursor == n.upTo {
				err = w.bookmark(false)
			}
			w.timer.Reset(w.untilBookmark())
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// untilBookmark is the interval, or less shortly before the request ends.
func (w *watcher) untilBookmark() time.Duration {
	wait := w.s.resource.db.config.BookmarkInterval
	if !w.goodbye.IsZero() {
		if left := time.Until(w.goodbye) - farewell; left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// catchUp sends the next events and moves the cursor behind them.
func (w *watcher) catchUp(n news) error {
	events, upTo := n.events, n.upTo
	if !n.inMemory {
		if err := w.s.resource.read(0, func(v *view) (err error) {
			events, upTo, err = v.events(w.cursor, watchReadBytes)
			return err
		}); err != nil {
			return err
		}
	}
	for _, e := range events {
		if !w.concerns(e.key) {
			continue
		}
		result, err := w.transition(e)
		if err != nil {
			return err
		}
		if result != nil && !w.send(*result) {
			return errStopped
		}
	}
	w.cursor = upTo
	return nil
}

func (w *watcher) concerns(key string) bool {
	if w.recursive {
		return strings.HasPrefix(key, w.key)
	}
	return key == w.key
}

// transition is what a write means to this watcher: an object that begins to
// match its selector is added, one that ceases to is deleted.
func (w *watcher) transition(e *event) (*watch.Event, error) {
	var current, previous *decoded
	var err error
	if !e.deleted {
		current, err = e.object.get(w.s, func() (runtime.Object, error) {
			return w.s.restore(w.ctx, e.key, e.value, e.rev)
		})
		if err != nil {
			return nil, err
		}
	}
	// The previous state goes out with the revision of the write that ended it.
	if e.deleted || (!e.created && !w.pred.Empty()) {
		previous, err = e.prevObject.get(w.s, func() (runtime.Object, error) {
			return w.s.restore(w.ctx, e.key, e.prevValue, e.rev)
		})
		var corrupt *CorruptObjectError
		if e.deleted && errors.As(err, &corrupt) {
			err = &corruptDeletionError{err: err}
		}
		if err != nil {
			return nil, err
		}
	}
	is, was := current != nil && w.matches(current.object), false
	switch {
	case e.created:
	case previous != nil:
		was = w.matches(previous.object)
	default:
		was = true // everything matches
	}
	switch {
	case is && was:
		return w.result(watch.Modified, current), nil
	case is:
		return w.result(watch.Added, current), nil
	case was:
		return w.result(watch.Deleted, previous), nil
	}
	return nil, nil
}

func (w *watcher) matches(obj runtime.Object) bool {
	if w.pred.Empty() {
		return true
	}
	matched, err := w.pred.Matches(obj)
	return err == nil && matched
}

func (w *watcher) result(t watch.EventType, d *decoded) *watch.Event {
	if w.times {
		return &watch.Event{Type: t, Object: &timedObject{Object: d.object.DeepCopyObject(), at: time.Now()}}
	}
	return &watch.Event{Type: t, Object: d.give(int(w.s.resource.feed.crowd.Load()))}
}

// bookmark says up to where the watcher has seen everything.
func (w *watcher) bookmark(initialEventsEnd bool) error {
	obj := w.s.newFunc()
	if err := w.s.versioner.UpdateObject(obj, w.cursor); err != nil {
		return fmt.Errorf("bookmark of %s: %w", w.s.groupResource, err)
	}
	if initialEventsEnd {
		if err := storage.AnnotateInitialEventsEndBookmark(obj); err != nil {
			return fmt.Errorf("bookmark of %s: %w", w.s.groupResource, err)
		}
	}
	if !w.send(watch.Event{Type: watch.Bookmark, Object: obj}) {
		return errStopped
	}
	return nil
}
