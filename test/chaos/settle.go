// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settleTimeout bounds the time until all that the authors did is in Git. Changes whose
// author stays unknown wait for 45 s, then for their window.
const settleTimeout = 3 * time.Minute

// settle lets each author save what is left, and waits until nothing is under way. The
// error says what still is.
func (w *world) settle(ctx context.Context) error {
	for _, a := range w.authors {
		for _, namespace := range a.namespaces {
			// Another save may be under way still, then it is refused.
			if err := until(ctx, settleTimeout, func(ctx context.Context) (string, error) {
				if !a.saveAll(ctx, namespace) {
					return a.name + "'s last save in " + namespace + " is not accepted: " + w.requests.unfinished(), nil
				}
				return "", nil
			}); err != nil {
				return err
			}
		}
	}
	return until(ctx, settleTimeout, w.underWay)
}

// underWay is something that has not come to an end; empty when all has.
func (w *world) underWay(ctx context.Context) (string, error) {
	for _, place := range w.places {
		list, err := w.kommit.KommitV1alpha1().CommitRequests(place.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "the requests cannot be listed", err
		}
		// Only what follows them observes, so that versions are seen in their order.
		if missing := w.requests.behind(list.Items); missing != "" {
			return missing, nil
		}
		windows, err := w.kommit.KommitV1alpha1().CommitWindows(place.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "the windows cannot be listed", err
		}
		for _, open := range windows.Items {
			return fmt.Sprintf("a window of %s %s in %s is open with %d changes", open.Status.AuthorKind, open.Status.Author, place.Namespace, open.Status.ChangeCount), nil
		}
	}
	if left := w.requests.unfinished(); left != "" {
		return left, nil
	}
	cluster, err := w.cluster(ctx)
	if err != nil {
		return "the cluster cannot be read", err
	}
	repository, err := w.clone(ctx)
	if err != nil {
		return "the repository cannot be read", err
	}
	if !maps.EqualFunc(cluster, repository.Files, maps.Equal[map[string]string, map[string]string]) {
		return "Git is not as the cluster is", nil
	}
	return "", nil
}

// verify what is there now. Each finding about a file comes with its history.
func (w *world) verify(ctx context.Context) ([]Finding, error) {
	cluster, err := w.cluster(ctx)
	if err != nil {
		return nil, err
	}
	repository, err := w.clone(ctx)
	if err != nil {
		return nil, err
	}
	findings := Verify(Evidence{
		Edits: w.history.Edits(), Saves: w.history.Saves(), Requests: w.requests.All(),
		Cluster: cluster, Repository: repository, Places: w.places,
	})
	findings = append(findings, w.requests.Findings()...)
	if err := w.stack.Git.Repository(repositoryName).Fsck(ctx); err != nil {
		findings = append(findings, Finding{Kind: Damaged, Detail: err.Error()})
	}
	dropped, err := w.droppedEvents(ctx)
	if err != nil {
		return nil, err
	}
	if dropped > 0 {
		findings = append(findings, Finding{Kind: Unproven, Detail: fmt.Sprintf("kube-apiserver dropped %v audit events: what they were about can have no author", dropped)})
	}
	return findings, nil
}

// explain is what helps to find the cause of a finding about a file: what was done to
// its object, and what Git has of it.
func (w *world) explain(ctx context.Context, f Finding) string {
	if f.Path == "" {
		return ""
	}
	var b strings.Builder
	for _, e := range w.history.Edits() {
		if (Evidence{Places: w.places}).path(e.Object) == f.Path {
			fmt.Fprintf(&b, "    %s at version %d, outcome %d, deletes: %v\n", e.Token, e.ResourceVersion, e.Outcome, e.Delete)
		}
	}
	log, err := w.stack.Git.Repository(repositoryName).Git(ctx, "log", "--reverse", "--patch", "--unified=0", "--no-renames", "--format=%h %an %cI %s", branch, "--", f.Path)
	if err != nil {
		log = err.Error()
	}
	for line := range strings.Lines(log) {
		b.WriteString("    " + line)
	}
	return b.String()
}
