// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sharedLists shares consistent lists between proofs that begin at about the same
// time: one is under way at most, and all who come meanwhile have the next, which
// begins after they came. So a thousand saves at once cost the cluster a few lists.
// Safe for concurrent use.
type sharedLists struct {
	list func() (*metav1.PartialObjectMetadataList, error)

	mu            sync.Mutex
	running, next *sharedList
}

type sharedList struct {
	done chan struct{} // list and err are set once it is closed
	list *metav1.PartialObjectMetadataList
	err  error
}

// fresh returns a list that begins after the call, or the context's error. The
// list is shared: it must not be changed.
func (l *sharedLists) fresh(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
	l.mu.Lock()
	if l.next == nil {
		l.next = &sharedList{done: make(chan struct{})}
	}
	mine := l.next
	if l.running == nil {
		l.running, l.next = l.next, nil
		go l.run(l.running)
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		return mine.list, mine.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// run lists until nobody waits.
func (l *sharedLists) run(now *sharedList) {
	for now != nil {
		now.list, now.err = l.list()
		close(now.done)
		l.mu.Lock()
		l.running, l.next = l.next, nil
		now = l.running
		l.mu.Unlock()
	}
}
