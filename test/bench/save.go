// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/stack"
)

const saveNamespace = "bench"

// savedObject is another one each round: people seldom save one object twice a
// second.
func savedObject(round int) string { return fmt.Sprintf("prices-%d", round) }

// saveRounds are those counted; one more comes before them.
const saveRounds = 15

// saver saves one changed object: with kommit, and with the git command line in a
// checkout of the same remote.
type saver struct {
	stack    *stack.Stack
	cluster  kubernetes.Interface
	requests versioned.Interface
	checkout string
}

// saveLatency measures from the create of a CommitRequest to Pushed=True, for one
// changed object and maxDuration 0s. The peer is git add, commit and push of the
// same change.
func saveLatency(ctx context.Context) (sides, error) {
	s, end, err := newSaver(ctx)
	if err != nil {
		return sides{}, err
	}
	return sides{ours: s.withKommit, peer: s.withGit, close: end}, nil
}

// newSaver starts everything for alice, and others who may edit and save, too. end
// stops it.
func newSaver(ctx context.Context, others ...string) (_ *saver, end func(context.Context) error, err error) {
	dir, err := os.MkdirTemp("", "kommit-bench-")
	if err != nil {
		return nil, nil, err
	}
	s := &saver{checkout: filepath.Join(dir, "checkout")}
	end = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var stopped error
		if s.stack != nil {
			stopped = s.stack.Stop(ctx)
		}
		return errors.Join(stopped, os.RemoveAll(dir))
	}
	if err := s.prepare(ctx, dir, append([]string{"alice"}, others...)); err != nil {
		return nil, nil, errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	return s, end, nil
}

func (s *saver) prepare(ctx context.Context, dir string, users []string) (err error) {
	if s.stack, err = stack.Start(ctx, stack.Config{Dir: filepath.Join(dir, "stack"), Log: os.Stderr}); err != nil {
		return err
	}
	shop := stack.Shop{Namespace: saveNamespace, Target: "prod", Branch: "main", Repository: "bench", Users: users}
	if err := s.stack.SetUpShop(ctx, shop); err != nil {
		return err
	}
	config, err := s.stack.ControlPlane.RESTConfig("alice")
	if err != nil {
		return err
	}
	if s.cluster, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if s.requests, err = versioned.NewForConfig(config); err != nil {
		return err
	}
	for round := range saveRounds + 1 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: savedObject(round)}, Data: map[string]string{"round": "none"}}
		if _, err := s.cluster.CoreV1().ConfigMaps(saveNamespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	remote, err := url.Parse(s.stack.Git.Repository("bench").URL)
	if err != nil {
		return err
	}
	remote.User = url.UserPassword(stack.GitUsername, stack.GitPassword)
	for _, command := range [][]string{
		{"init", "--quiet", "--initial-branch=peer", s.checkout},
		{"-C", s.checkout, "remote", "add", "origin", remote.String()},
		{"-C", s.checkout, "config", "user.name", "alice"},
		{"-C", s.checkout, "config", "user.email", "alice@example.com"},
		{"-C", s.checkout, "config", "gc.auto", "0"},
	} {
		if err := gitCommand(ctx, "git", command...); err != nil {
			return err
		}
	}
	return nil
}

func (s *saver) withKommit(ctx context.Context, round int) (float64, error) {
	patch := fmt.Sprintf(`{"data":{"round":"%d"}}`, round)
	if _, err := s.cluster.CoreV1().ConfigMaps(saveNamespace).Patch(ctx, savedObject(round), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return 0, err
	}
	requests := s.requests.KommitV1alpha1().CommitRequests(saveNamespace)
	name := fmt.Sprintf("round-%d", round)
	events, err := requests.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return 0, err
	}
	defer events.Stop()

	began := time.Now()
	_, err = requests.Create(ctx, &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.CommitRequestSpec{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"},
			Message:      fmt.Sprintf("Round %d", round),
			Window:       v1alpha1.RequestWindow{MaxDuration: &metav1.Duration{}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	for event := range events.ResultChan() {
		request, ok := event.Object.(*v1alpha1.CommitRequest)
		if !ok {
			return 0, fmt.Errorf("watch: %v", event.Object)
		}
		switch {
		case apimeta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionPushed):
			return milliseconds(began), nil
		case request.Status.CompletionTime != nil:
			return 0, fmt.Errorf("%s ended without a push: %+v", name, request.Status.Conditions)
		}
	}
	return 0, fmt.Errorf("the watch ended before %s was pushed", name)
}

func (s *saver) withGit(ctx context.Context, round int) (float64, error) {
	content := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\ndata:\n  round: \"%d\"\n", savedObject(round), saveNamespace, round)
	file := filepath.Join(s.checkout, saveNamespace, "configmaps", savedObject(round)+".yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return 0, err
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return 0, err
	}
	save := fmt.Sprintf("cd '%s' && git add . && git commit --quiet -m 'Round %d' && git push --quiet origin peer", s.checkout, round)
	began := time.Now()
	if err := gitCommand(ctx, "sh", "-c", save); err != nil {
		return 0, err
	}
	return milliseconds(began), nil
}

// gitCommand runs a command that sees no git configuration of this machine.
func gitCommand(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = gitEnvironment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
