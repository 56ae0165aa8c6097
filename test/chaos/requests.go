// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/pkg/window"
)

// Requests is what was seen of the CommitRequests, from the beginning on and over all
// restarts. Safe for concurrent use.
type Requests struct {
	mu       sync.Mutex
	last     map[types.UID]v1alpha1.CommitRequest
	findings []Finding
}

// Observe one version, as it was listed or came over a watch. A finished request that
// changes its end, and a version that is older than one seen before, are findings.
func (r *Requests) Observe(now v1alpha1.CommitRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[types.UID]v1alpha1.CommitRequest{}
	}
	before, known := r.last[now.UID]
	if known {
		switch {
		case version(now) < version(before):
			r.find(now, "its version went back from %s to %s", before.ResourceVersion, now.ResourceVersion)
			return
		case window.Finished(before.Status) && end(now) != end(before):
			r.find(now, "it ended twice: first %s, then %s", end(before), end(now))
		}
	}
	r.last[now.UID] = now
}

// observeAll is Observe of a complete list of a namespace: what was there before is
// there still, for nobody deletes them.
func (r *Requests) observeAll(namespace string, list []v1alpha1.CommitRequest) {
	listed := map[types.UID]bool{}
	for _, now := range list {
		listed[now.UID] = true
		r.Observe(now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, before := range r.last {
		if before.Namespace == namespace && !listed[uid] {
			r.find(before, "it is gone")
			delete(r.last, uid)
		}
	}
}

func (r *Requests) find(about v1alpha1.CommitRequest, format string, args ...any) {
	object := Object{Namespace: about.Namespace, Name: about.Name}
	r.findings = append(r.findings, Finding{Kind: Resolution, Detail: fmt.Sprintf("request %s: "+format, append([]any{object}, args...)...)})
}

func version(r v1alpha1.CommitRequest) uint64 {
	v, err := strconv.ParseUint(r.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

func reason(r v1alpha1.CommitRequest) string {
	if ready := apimeta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return ""
}

// end is what a finished request says of its end, empty for one that goes on.
func end(r v1alpha1.CommitRequest) string {
	if !window.Finished(r.Status) {
		return ""
	}
	return fmt.Sprintf("%s %s at %s", reason(r), r.Status.Commit, r.Status.CompletionTime.UTC().Format(time.RFC3339))
}

// All is the last version of each, by namespace and name.
func (r *Requests) All() []v1alpha1.CommitRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []v1alpha1.CommitRequest
	for _, request := range r.last {
		all = append(all, request)
	}
	slices.SortFunc(all, func(a, b v1alpha1.CommitRequest) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// behind tells of one in a list that was not observed yet as it is there.
func (r *Requests) behind(list []v1alpha1.CommitRequest) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, request := range list {
		if version(r.last[request.UID]) < version(request) {
			return fmt.Sprintf("request %s/%s is not observed yet", request.Namespace, request.Name)
		}
	}
	return ""
}

// unfinished tells of one that is not at its end; empty when all are.
func (r *Requests) unfinished() string {
	for _, request := range r.All() {
		if !window.Finished(request.Status) {
			return fmt.Sprintf("request %s/%s is %s", request.Namespace, request.Name, reason(request))
		}
	}
	return ""
}

// Findings so far.
func (r *Requests) Findings() []Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.findings)
}

// follow a namespace's requests until ctx ends, however often the server goes.
func (r *Requests) follow(ctx context.Context, client versioned.Interface, namespace string) {
	for ctx.Err() == nil {
		r.followOnce(ctx, client, namespace)
		wait(ctx, 50*time.Millisecond)
	}
}

func (r *Requests) followOnce(ctx context.Context, client versioned.Interface, namespace string) {
	requests := client.KommitV1alpha1().CommitRequests(namespace)
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil {
		return // it is down
	}
	r.observeAll(namespace, list.Items)
	events, err := requests.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		request, ok := event.Object.(*v1alpha1.CommitRequest)
		if !ok {
			return // an error: begin anew
		}
		if event.Type != watch.Deleted { // the next list finds it missing
			r.Observe(*request)
		}
	}
}
