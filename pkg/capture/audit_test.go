// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/pkg/window"
)

// audit stands for the attribution room: facts that tests add, a grace, and order
// per object.
type audit struct {
	grace time.Duration

	mu      sync.Mutex
	facts   map[string]string
	waiting map[window.Object][]waiting
	// submitted and asked are the versions that came by way of Submit and of Find.
	submitted, asked []Version
}

type waiting struct {
	version Version
	deliver func(string, bool)
	// over: the grace has ended.
	over bool
}

func newAudit(grace time.Duration) *audit {
	return &audit{grace: grace, facts: map[string]string{}, waiting: map[window.Object][]waiting{}}
}

func factKey(v Version) string {
	if v.Deleted {
		return string(v.UID) + "/deleted"
	}
	return string(v.UID) + "/" + v.ResourceVersion
}

func (a *audit) Find(v Version) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, v)
	username, ok := a.facts[factKey(v)]
	return username, ok
}

// Sole looks at facts of the object's uid with another user, as numbers.
func (a *audit) Sole(v Version, after, username string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, other := range a.facts {
		uid, version, _ := strings.Cut(key, "/")
		if uid == string(v.UID) && other != username && compareVersions(after, version) < 0 && compareVersions(version, v.ResourceVersion) < 0 {
			return false
		}
	}
	return true
}

func (a *audit) Submit(_ context.Context, v Version, deliver func(string, bool)) {
	object := window.Object{Group: v.Group, Resource: v.Resource, Namespace: v.Namespace, Name: v.Name}
	a.mu.Lock()
	a.submitted = append(a.submitted, v)
	a.waiting[object] = append(a.waiting[object], waiting{version: v, deliver: deliver})
	a.mu.Unlock()
	time.AfterFunc(a.grace, func() {
		a.mu.Lock()
		for i, w := range a.waiting[object] {
			if factKey(w.version) == factKey(v) {
				a.waiting[object][i].over = true
			}
		}
		a.mu.Unlock()
		a.drain(object)
	})
	a.drain(object)
}

func (a *audit) drain(object window.Object) {
	for {
		a.mu.Lock()
		queue := a.waiting[object]
		if len(queue) == 0 {
			a.mu.Unlock()
			return
		}
		username, ok := a.facts[factKey(queue[0].version)]
		if !ok && !queue[0].over {
			a.mu.Unlock()
			return
		}
		a.waiting[object] = queue[1:]
		a.mu.Unlock()
		queue[0].deliver(username, ok)
	}
}

// says adds a fact.
func (a *audit) says(username string, uid types.UID, version string) {
	a.mu.Lock()
	a.facts[string(uid)+"/"+version] = username
	var about []window.Object
	for object, queue := range a.waiting {
		if len(queue) > 0 && queue[0].version.UID == uid {
			about = append(about, object)
		}
	}
	a.mu.Unlock()
	for _, object := range about {
		a.drain(object)
	}
}
