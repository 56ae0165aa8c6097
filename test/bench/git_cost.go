// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/kommit-dev/kommit/pkg/git"
)

// largeAgainstSmall measures one push to the large repository, and one to the
// small repository as the peer.
func largeAgainstSmall(cost func(context.Context, *writer, string) (float64, error)) func(context.Context) (sides, error) {
	side := func(r *gitRemote) (measure, error) {
		w, err := r.writer(oursBranch)
		return func(ctx context.Context, round int) (float64, error) {
			return cost(ctx, w, fmt.Sprint("round ", round))
		}, err
	}
	return func(ctx context.Context) (sides, error) {
		return onRemote(ctx, large(), func(r *gitRemote) (out sides, err error) {
			other, err := newGitRemote(ctx, small())
			if err != nil {
				return sides{}, err
			}
			r.closers = append(r.closers, func() error { return other.close(ctx) })
			if out.ours, err = side(r); err != nil {
				return sides{}, err
			}
			out.peer, err = side(other)
			return out, err
		})
	}
}

// ownPart is the milliseconds of a push that the server is not busy with it.
func ownPart(ctx context.Context, w *writer, value string) (float64, error) {
	commit := editOf(value, w.remote.path(5, 50))
	if _, err := w.remote.server.served(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := w.push(ctx, commit); err != nil {
		return 0, err
	}
	all := time.Since(began)
	served, err := w.remote.server.served(ctx)
	return float64(all-served.busy) / float64(time.Millisecond), err
}

// allocated is the bytes that a push allocates, in total.
func allocated(ctx context.Context, w *writer, value string) (float64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := w.push(ctx, editOf(value, w.remote.path(5, 50)))
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc), err
}

// coldStart is the milliseconds from knowing nothing of the repository to a
// change of one file that could be pushed. The peer fetches the tip without its
// files into an empty repository.
func coldStart(ctx context.Context) (sides, error) {
	return onRemote(ctx, large(), func(r *gitRemote) (sides, error) {
		_, err := r.bare.Git(ctx, "config", "uploadpack.allowFilter", "true")
		return sides{
			ours: func(ctx context.Context, round int) (float64, error) {
				commit := editOf(fmt.Sprint("round ", round), r.path(round, 50))
				began := time.Now()
				repo, err := r.open()
				if err != nil {
					return 0, err
				}
				defer repo.Close()
				preview, err := repo.Preview(ctx, oursBranch, commit)
				took := milliseconds(began)
				if err == nil && len(preview.Files) != 1 {
					err = fmt.Errorf("%d files would change", len(preview.Files))
				}
				return took, err
			},
			peer: func(ctx context.Context, round int) (float64, error) {
				dir := filepath.Join(r.dir, fmt.Sprint("cold-", round))
				if err := gitCommand(ctx, "git", "init", "--quiet", "--bare", dir); err != nil {
					return 0, err
				}
				return shell(ctx, dir, fmt.Sprintf("git fetch --quiet --depth 1 --filter=blob:none '%s' %s", r.url, peerBranch))
			},
		}, err
	})
}

// batched is how many commits wait for one push.
const batched = 40

// batch pushes 40 commits at once. The peer pushes them one by one.
func batch(ctx context.Context) (sides, error) {
	return onRemote(ctx, large(), func(r *gitRemote) (sides, error) {
		ours, err := r.writer(oursBranch)
		if err != nil {
			return sides{}, err
		}
		theirs, err := r.writer(peerBranch)
		commits := func(round int) []git.Commit {
			c := make([]git.Commit, batched)
			for i := range c {
				c[i] = editOf(fmt.Sprintf("round %d", round), r.path(i, 50))
			}
			return c
		}
		return sides{
			ours: func(ctx context.Context, round int) (float64, error) {
				all := commits(round)
				began := time.Now()
				err := ours.push(ctx, all...)
				return milliseconds(began), err
			},
			peer: func(ctx context.Context, round int) (float64, error) {
				all := commits(round)
				began := time.Now()
				for _, c := range all {
					if err := theirs.push(ctx, c); err != nil {
						return 0, err
					}
				}
				return milliseconds(began), nil
			},
		}, err
	})
}

// flatDirectory is the bytes that are sent to change one file in a directory of
// 20,000. The peer is a pack that git makes of the same, with all objects whole.
func flatDirectory(ctx context.Context) (sides, error) {
	return onRemote(ctx, flat(), func(r *gitRemote) (sides, error) {
		w, err := r.writer(oursBranch)
		before := ""
		return sides{
			ours: func(ctx context.Context, round int) (float64, error) {
				if before, err = r.bare.Head(ctx, oursBranch); err != nil {
					return 0, err
				}
				commit := editOf(fmt.Sprint("round ", round), r.path(0, 10_000+round))
				if _, err := w.repo.Tree(ctx, oursBranch); err != nil { // warm, so that nothing but the push is counted
					return 0, err
				}
				if _, err := w.repo.Preview(ctx, oursBranch, commit); err != nil {
					return 0, err
				}
				if _, err := r.server.served(ctx); err != nil {
					return 0, err
				}
				if err := w.push(ctx, commit); err != nil {
					return 0, err
				}
				served, err := r.server.served(ctx)
				return float64(served.received), err
			},
			peer: func(ctx context.Context, _ int) (float64, error) {
				cmd := exec.CommandContext(ctx, "git", "-C", r.bare.Dir, "pack-objects", "--revs", "--stdout", "--quiet")
				cmd.Stdin, cmd.Env = bytes.NewReader(fmt.Appendf(nil, "%s\n^%s\n", oursBranch, before)), gitEnvironment()
				pack, err := cmd.Output()
				return float64(len(pack)), err
			},
		}, err
	})
}
