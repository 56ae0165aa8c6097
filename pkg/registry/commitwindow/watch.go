// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitwindow

import (
	"context"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

const (
	// bookmarkInterval is how often a watch that asked for bookmarks gets one.
	bookmarkInterval = time.Minute
	// watchBuffer is how many events wait for a watcher that is not reading.
	watchBuffer = 16
)

// watcher follows the table from its own cursor. Nobody waits for it: one that is
// slow sees the last of several changes to a window.
type watcher struct {
	windows   Table
	namespace string
	selects   selector
	cursor    uint64

	initial    bool // send what is open first
	initialEnd bool // then the bookmark that says so
	bookmarks  bool // and at intervals

	ctx     context.Context
	cancel  context.CancelFunc
	results chan watch.Event
}

var _ watch.Interface = (*watcher)(nil)

// Watch implements rest.Watcher.
func (r *REST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	cursor, err := storage.APIObjectVersioner{}.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	sendInitial := options.SendInitialEvents != nil && *options.SendInitialEvents
	w := &watcher{
		windows:    r.windows,
		namespace:  genericapirequest.NamespaceValue(ctx),
		selects:    selectorOf(options),
		cursor:     cursor,
		initial:    sendInitial || (options.SendInitialEvents == nil && cursor == 0),
		initialEnd: sendInitial && options.AllowWatchBookmarks,
		bookmarks:  options.AllowWatchBookmarks,
		results:    make(chan watch.Event, watchBuffer),
	}
	open, revision := r.windows.Windows(w.namespace)
	switch {
	case w.initial && cursor > revision:
		return nil, storage.NewTooLargeResourceVersionError(cursor, revision, 1)
	case w.initial || cursor == 0:
		w.cursor = revision
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	utilflowcontrol.WatchInitialized(ctx)
	go w.run(open)
	return w, nil
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.cancel() }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

func (w *watcher) run(open []v1alpha1.CommitWindow) {
	defer w.cancel()
	defer close(w.results)
	if w.initial {
		for i := range open {
			if w.selects.matches(&open[i]) && !w.send(watch.Event{Type: watch.Added, Object: &open[i]}) {
				return
			}
		}
		if w.initialEnd && !w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}) {
			return
		}
	}
	var timer <-chan time.Time
	for {
		events, upTo, next, ok := w.windows.Since(w.namespace, w.cursor)
		if !ok {
			expired := apierrors.NewResourceExpired("this resourceVersion of commitwindows is too old, or of an earlier process: list again").Status()
			w.send(watch.Event{Type: watch.Error, Object: &expired})
			return
		}
		for _, e := range events {
			if w.selects.matches(e.Object.(*v1alpha1.CommitWindow)) && !w.send(e) {
				return
			}
		}
		w.cursor = upTo
		if w.bookmarks && timer == nil {
			timer = time.After(bookmarkInterval)
		}
		select {
		case <-next:
		case <-timer:
			timer = nil
			if !w.bookmark(nil) {
				return
			}
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *watcher) bookmark(annotations map[string]string) bool {
	return w.send(watch.Event{Type: watch.Bookmark, Object: &v1alpha1.CommitWindow{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.FormatUint(w.cursor, 10),
		Annotations:     annotations,
	}}})
}

func (w *watcher) send(e watch.Event) bool {
	select {
	case w.results <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}
