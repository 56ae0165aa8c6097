// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
)

const (
	burstRounds = 5
	burstSize   = 1_000
	// burstHands edit at the same time for each of the two users.
	burstHands = 8
	// burstTime is within which all edits begin, if the cluster can take them.
	burstTime  = time.Second
	burstBound = 3 * time.Minute
)

// burst has two users edit at once, and save.
type burst struct {
	crowdOfUsers

	checkout, kubeconfig string
}

// captureBurst measures 1,000 ConfigMap edits by two users within a second, who
// both save then: from the end of the last edit to the last Pushed=True. No edit
// may be missing, and each has to be in its author's commit. The peer is kubectl get
// -o yaml of the 1,000 and git add, commit and push of one file each.
func captureBurst(ctx context.Context) (_ sides, err error) {
	b := &burst{}
	lone, end, err := newSaver(ctx, "bob")
	if err != nil {
		return sides{}, err
	}
	b.lone = lone
	if err := b.prepare(ctx, []string{"alice", "bob"}); err != nil {
		return sides{}, errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	return sides{ours: b.edit, peer: b.byHand, close: end}, nil
}

func (b *burst) prepare(ctx context.Context, users []string) (err error) {
	if err := b.crowdOfUsers.prepare(ctx, users); err != nil {
		return err
	}
	if b.kubeconfig, err = b.lone.stack.ControlPlane.Kubeconfig(controlplane.Admin); err != nil {
		return err
	}
	b.checkout = filepath.Join(filepath.Dir(b.lone.checkout), "burst")
	if err := checkout(ctx, b.checkout, b.lone.stack.Git.Repository("bench").URL); err != nil {
		return err
	}
	return b.everything(func(m member, i int) error {
		_, err := m.cluster.CoreV1().ConfigMaps(saveNamespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: edited(m, i), Labels: map[string]string{"burst": "true"}}, Data: map[string]string{"round": "none"},
		}, metav1.CreateOptions{})
		return err
	}, 0)
}

func edited(m member, i int) string { return fmt.Sprintf("%s-%03d", m.name, i) }

// everything does something for each object of each user, spread over that time.
func (b *burst) everything(do func(m member, i int) error, over time.Duration) error {
	each := burstSize / len(b.members)
	began := time.Now()
	return b.each(func(_ int, m member) error {
		numbers := make(chan int)
		errs := make([]error, burstHands)
		var hands sync.WaitGroup
		for hand := range burstHands {
			hands.Go(func() {
				for i := range numbers {
					if errs[hand] == nil {
						errs[hand] = do(m, i)
					}
				}
			})
		}
		for i := range each {
			<-time.After(time.Until(began.Add(over * time.Duration(i) / time.Duration(each))))
			numbers <- i
		}
		close(numbers)
		hands.Wait()
		return errors.Join(errs...)
	})
}

func (b *burst) edit(ctx context.Context, round int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, burstBound)
	defer cancel()
	patch := fmt.Appendf(nil, `{"data":{"round":"%d"}}`, round)
	began := time.Now()
	if err := b.everything(func(m member, i int) error {
		_, err := m.cluster.CoreV1().ConfigMaps(saveNamespace).Patch(ctx, edited(m, i), types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}, burstTime); err != nil {
		return 0, err
	}
	last := time.Now()
	fmt.Fprintf(os.Stderr, "round %d: %d edits in %s\n", round, burstSize, last.Sub(began).Round(time.Millisecond))
	hashes := make([]string, len(b.members))
	err := b.each(func(i int, m member) (err error) {
		hashes[i], err = saved(ctx, m.requests, fmt.Sprintf("%s-burst-%d", m.name, round))
		return err
	})
	took := milliseconds(last)
	if err != nil {
		return 0, err
	}
	for i, m := range b.members {
		if err := b.check(ctx, m, hashes[i], round); err != nil {
			return 0, err
		}
	}
	return took, nil
}

// saved creates a request, and returns the hash of its commit once it is pushed.
func saved(ctx context.Context, client versioned.Interface, name string) (string, error) {
	requests := client.KommitV1alpha1().CommitRequests(saveNamespace)
	events, err := requests.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return "", err
	}
	defer events.Stop()
	_, err = requests.Create(ctx, &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.CommitRequestSpec{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"},
			Message:      name,
			Window:       v1alpha1.RequestWindow{MaxDuration: &metav1.Duration{}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	for event := range events.ResultChan() {
		request, ok := event.Object.(*v1alpha1.CommitRequest)
		switch {
		case !ok:
			return "", fmt.Errorf("watch: %v", event.Object)
		case apimeta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionPushed):
			return request.Status.Commit, nil
		case request.Status.CompletionTime != nil:
			return "", fmt.Errorf("%s ended without a push: %+v", name, request.Status.Conditions)
		}
	}
	return "", fmt.Errorf("the watch ended before %s was pushed", name)
}

// check makes sure that the user's commit has all edits of the user and no other.
func (b *burst) check(ctx context.Context, m member, hash string, round int) error {
	repository := b.lone.stack.Git.Repository("bench")
	author, err := repository.Git(ctx, "show", "--no-patch", "--format=%an", hash)
	if err != nil {
		return err
	}
	if author = strings.TrimSpace(author); author != m.name {
		return fmt.Errorf("the commit of %s is by %s", m.name, author)
	}
	files, err := repository.Git(ctx, "diff-tree", "--no-commit-id", "--name-only", "--root", "-r", hash)
	if err != nil {
		return err
	}
	changed := map[string]bool{}
	for file := range strings.FieldsSeq(files) {
		changed[strings.TrimSuffix(filepath.Base(file), ".yaml")] = true
	}
	for i := range burstSize / len(b.members) {
		if !changed[edited(m, i)] {
			return fmt.Errorf("round %d: the edit of %s is not in the commit of %s", round, edited(m, i), m.name)
		}
		delete(changed, edited(m, i))
	}
	if round > 0 && len(changed) > 0 { // the first has all that was there before
		return fmt.Errorf("round %d: the commit of %s has %v, too", round, m.name, slices.Sorted(maps.Keys(changed)))
	}
	return nil
}

func (b *burst) byHand(ctx context.Context, _ int) (float64, error) {
	return byHand(ctx, b.checkout, func(ctx context.Context, file string) error {
		out, err := os.Create(file)
		if err != nil {
			return err
		}
		defer out.Close()
		cmd := exec.CommandContext(ctx, filepath.Join(b.lone.stack.BinDir(), "kubectl"), "get", "configmaps",
			"--kubeconfig="+b.kubeconfig, "--namespace="+saveNamespace, "--selector=burst=true", "--output=yaml")
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		return cmd.Run()
	})
}
