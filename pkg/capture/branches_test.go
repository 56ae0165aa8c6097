// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/pkg/window"
)

// branches stands for the branch workers: what reached them, and the files that
// Git has.
type branches struct {
	mu      sync.Mutex
	entries []string
	files   map[window.Object]string
	orphans []window.Object
	fail    error
	// room limits nothing unless it is set: then each change takes one.
	room chan struct{}
	// gate holds comparisons up until it is closed, if it is set.
	gate chan struct{}
	// ending: nothing is taken any more.
	ending bool
}

var errEnding = errors.New("the process is about to end")

func (b *branches) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ending = true
}

func (b *branches) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ending
}

func (b *branches) note(entry string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, entry)
}

// take returns what came since the last call.
func (b *branches) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	entries := b.entries
	b.entries = nil
	return entries
}

func describe(c window.Change) string {
	who := cmp.Or(c.Author.Username, "-")
	if c.Author.Unresolved {
		who = "unresolved"
	}
	return fmt.Sprintf("%s %s %s/%s %s", c.Target.Name, c.Operation, c.Object.Resource, c.Object.Name, who)
}

func (b *branches) Change(_ context.Context, c window.Change) error {
	if b.ended() {
		return errEnding
	}
	if b.room != nil {
		<-b.room
	}
	if (c.Manifest == nil) != (c.Operation == window.Delete) {
		b.note("BAD MANIFEST " + describe(c))
	}
	b.note(describe(c))
	return nil
}

func (b *branches) Resync(_ context.Context, target types.NamespacedName, changes []window.Change) error {
	if b.ended() {
		return errEnding
	}
	entry := target.Name + " resync"
	for _, c := range changes {
		entry += fmt.Sprintf(" %s:%s", c.Operation, c.Object.Name)
	}
	b.note(entry)
	return nil
}

func (b *branches) Differing(_ context.Context, _ types.NamespacedName, _ Scope, listed []window.Change) ([]window.Change, []window.Object, error) {
	if b.gate != nil {
		<-b.gate
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return nil, nil, b.fail
	}
	var differing []window.Change
	for _, c := range listed {
		if b.files[c.Object] != string(c.Manifest) {
			differing = append(differing, c)
		}
	}
	return differing, b.orphans, nil
}
