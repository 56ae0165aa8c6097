// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
)

const (
	crowdSize   = 200
	crowdRounds = 5
	// crowdTime is within which all of them save.
	crowdTime = time.Second
	// crowdBound is how long a round may take.
	crowdBound = 2 * time.Minute
)

// member is one of many users with an object of their own.
type member struct {
	name     string
	cluster  kubernetes.Interface
	requests versioned.Interface
}

// crowdOfUsers has many users save to one target.
type crowdOfUsers struct {
	lone    *saver
	members []member
	watcher versioned.Interface
}

// savesOfMany measures the 99th percentile from the create of a CommitRequest to
// Pushed=True, of 200 users who save one changed object each within a second. The
// peer is the time of a lone save; main takes the medians over the rounds.
func savesOfMany(ctx context.Context) (_ sides, err error) {
	c := &crowdOfUsers{}
	var users []string
	for i := range crowdSize {
		users = append(users, fmt.Sprintf("user-%03d", i))
	}
	lone, end, err := newSaver(ctx, users...)
	if err != nil {
		return sides{}, err
	}
	c.lone = lone
	if err := c.prepare(ctx, users); err != nil {
		return sides{}, errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	return sides{ours: c.save, peer: lone.withKommit, close: end}, nil
}

func (c *crowdOfUsers) prepare(ctx context.Context, users []string) error {
	admin, err := c.lone.stack.ControlPlane.RESTConfig(controlplane.Admin)
	if err != nil {
		return err
	}
	if c.watcher, err = versioned.NewForConfig(admin); err != nil {
		return err
	}
	for _, name := range users {
		config, err := c.lone.stack.ControlPlane.RESTConfig(name)
		if err != nil {
			return err
		}
		m := member{name: name}
		if m.cluster, err = kubernetes.NewForConfig(rest.CopyConfig(config)); err != nil {
			return err
		}
		if m.requests, err = versioned.NewForConfig(config); err != nil {
			return err
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"round": "none"}}
		if _, err := m.cluster.CoreV1().ConfigMaps(saveNamespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
		c.members = append(c.members, m)
	}
	return nil
}

// each runs f for every member at once.
func (c *crowdOfUsers) each(f func(i int, m member) error) error {
	errs := make([]error, len(c.members))
	var running sync.WaitGroup
	for i, m := range c.members {
		running.Go(func() { errs[i] = f(i, m) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (c *crowdOfUsers) save(ctx context.Context, round int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdBound)
	defer cancel()
	patch := fmt.Appendf(nil, `{"data":{"round":"%d"}}`, round)
	if err := c.each(func(_ int, m member) error {
		_, err := m.cluster.CoreV1().ConfigMaps(saveNamespace).Patch(ctx, m.name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}); err != nil {
		return 0, err
	}
	label := fmt.Sprintf("round=%d", round)
	events, err := c.watcher.KommitV1alpha1().CommitRequests(saveNamespace).Watch(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return 0, err
	}
	defer events.Stop()

	var mu sync.Mutex
	began := map[string]time.Time{}
	created := make(chan error, 1)
	go func() {
		created <- c.each(func(i int, m member) error {
			select {
			case <-time.After(time.Duration(i) * crowdTime / crowdSize):
			case <-ctx.Done():
				return ctx.Err()
			}
			name := fmt.Sprintf("%s-%d", m.name, round)
			mu.Lock()
			began[name] = time.Now()
			mu.Unlock()
			_, err := m.requests.KommitV1alpha1().CommitRequests(saveNamespace).Create(ctx, &v1alpha1.CommitRequest{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"round": fmt.Sprint(round)}},
				Spec: v1alpha1.CommitRequestSpec{
					GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"},
					Message:      name,
					Window:       v1alpha1.RequestWindow{MaxDuration: &metav1.Duration{}},
				},
			}, metav1.CreateOptions{})
			return err
		})
	}()
	took := map[string]float64{}
	for len(took) < crowdSize {
		select {
		case err := <-created:
			if err != nil {
				return 0, err
			}
			created = nil
		case event, ok := <-events.ResultChan():
			if !ok {
				return 0, fmt.Errorf("the watch ended when %d of %d were pushed", len(took), crowdSize)
			}
			request, ok := event.Object.(*v1alpha1.CommitRequest)
			switch {
			case !ok:
				return 0, fmt.Errorf("watch: %v", event.Object)
			case took[request.Name] != 0:
			case apimeta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionPushed):
				mu.Lock()
				took[request.Name] = milliseconds(began[request.Name])
				mu.Unlock()
			case request.Status.CompletionTime != nil:
				return 0, fmt.Errorf("%s ended without a push: %+v", request.Name, request.Status.Conditions)
			}
		}
	}
	all := make([]float64, 0, len(took))
	for _, t := range took {
		all = append(all, t)
	}
	slices.Sort(all)
	return all[len(all)*99/100-1], nil
}
