// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kommit-dev/kommit/test/controlplane"
)

// onShelf closes the shelf with the sides, or at once when they cannot be made.
func onShelf(ctx context.Context, make func(*shelf) (sides, error)) (sides, error) {
	s, err := newShelf(ctx)
	if err != nil {
		return sides{}, err
	}
	both, err := make(s)
	if err != nil {
		return sides{}, errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}
	both.close = s.close
	return both, nil
}

// captureFirstSync measures 10,000 objects of 5 KB into an empty repository, from
// the create of the WatchRule to the one commit on the remote. The peer is kubectl
// get -o yaml and git add, commit and push of one file each.
func captureFirstSync(ctx context.Context) (sides, error) {
	return onShelf(ctx, func(s *shelf) (sides, error) {
		return sides{
			ours: func(ctx context.Context, round int) (float64, error) {
				name := fmt.Sprintf("ours-%d", round)
				took, err := s.sync(ctx, name)
				if err != nil {
					return 0, err
				}
				return took, s.unsync(ctx, name)
			},
			peer: func(ctx context.Context, round int) (_ float64, err error) {
				remote, err := s.stack.Git.Create(ctx, fmt.Sprintf("peer-%d", round))
				if err != nil {
					return 0, err
				}
				dir := filepath.Join(s.dir, "checkout")
				defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
				if err := checkout(ctx, dir, remote.URL); err != nil {
					return 0, err
				}
				return byHand(ctx, dir, func(ctx context.Context, file string) error {
					return s.kubectlTo(ctx, file, "get", "configmaps", "--namespace="+shelfNamespace, "--selector=app=web", "--output=yaml")
				})
			},
		}, nil
	})
}

// captureRelist measures a list of 10,000 objects that is compared with Git and
// shows no change. The peer is kubectl get -o json.
func captureRelist(ctx context.Context) (sides, error) {
	return onShelf(ctx, func(s *shelf) (sides, error) {
		if _, err := s.sync(ctx, "ours"); err != nil {
			return sides{}, err
		}
		repository := s.stack.Git.Repository("ours")
		return sides{
			ours: func(ctx context.Context, round int) (float64, error) {
				took, err := s.relist(ctx, "ours", round+1)
				if err != nil {
					return 0, err
				}
				commits, err := repository.Git(ctx, "rev-list", "--count", "main")
				if err == nil && strings.TrimSpace(commits) != "1" {
					err = fmt.Errorf("%s commits after a list without change, want 1", strings.TrimSpace(commits))
				}
				return took, err
			},
			peer: func(ctx context.Context, _ int) (float64, error) {
				began := time.Now()
				err := s.kubectlTo(ctx, os.DevNull, "get", "configmaps", "--namespace="+shelfNamespace, "--selector=app=web", "--output=json")
				return milliseconds(began), err
			},
		}, nil
	})
}

// captureMemory measures by how much kommit-apiserver grows when it captures
// 10,000 objects of 5 KB, all of them in Git. The peer is a client-go informer of
// them.
func captureMemory(ctx context.Context) (sides, error) {
	const megabyte = 1e6
	return onShelf(ctx, func(s *shelf) (sides, error) {
		return sides{
			ours: func(ctx context.Context, round int) (float64, error) {
				before, err := s.serverHeap(ctx)
				if err != nil {
					return 0, err
				}
				name := fmt.Sprintf("ours-%d", round)
				if _, err := s.sync(ctx, name); err != nil {
					return 0, err
				}
				after, err := s.serverHeap(ctx)
				if err != nil {
					return 0, err
				}
				return (after - before) / megabyte, s.unsync(ctx, name)
			},
			peer: func(ctx context.Context, _ int) (float64, error) {
				config, err := s.stack.ControlPlane.RESTConfig(controlplane.Admin)
				if err != nil {
					return 0, err
				}
				client, err := kubernetes.NewForConfig(config)
				if err != nil {
					return 0, err
				}
				ctx, cancel := context.WithCancel(ctx)
				before := inUse()
				factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(shelfNamespace))
				informer := factory.Core().V1().ConfigMaps().Informer()
				factory.Start(ctx.Done())
				factory.WaitForCacheSync(ctx.Done())
				held := len(informer.GetStore().ListKeys())
				growth := (inUse() - before) / megabyte
				cancel()
				factory.Shutdown()
				if held < shelfSize {
					return 0, fmt.Errorf("the informer has %d objects, want %d", held, shelfSize)
				}
				return growth, nil
			},
		}, nil
	})
}
