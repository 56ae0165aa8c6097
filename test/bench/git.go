// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
)

// large is the repository that most are measured on.
func large() layout { return layout{directories: 1000, files: 100, history: 2000} }

// small has a hundredth of its directories, each as large.
func small() layout { return layout{directories: 10, files: 100, history: 100} }

// flat has one directory.
func flat() layout { return layout{directories: 1, files: 20_000, history: 10} }

// gitBenchmarks compare commit and push of pkg/git with others that do the same
// on the same remote, warm: the file that changes was changed before.
func gitBenchmarks() []benchmark {
	return []benchmark{
		{name: "git_commit_push_100k_vs_cli", unit: "ms", rounds: 9, prepare: oneFileAgainst((*gitRemote).commandLine)},
		{name: "git_commit_push_100k_vs_fastimport", unit: "ms", rounds: 15, prepare: oneFileAgainst((*gitRemote).fastImport)},
		{name: "git_commit_push_100k_vs_prepared_pack", unit: "ms", rounds: 31, prepare: oneFileAgainst((*gitRemote).preparedPack)},
		{name: "git_commit_push_100k_vs_gogit_worktree", unit: "ms", rounds: 3, prepare: oneFileAgainst((*gitRemote).goGitWorktree)},
		{name: "git_own_part_100k_vs_1k", unit: "ms", rounds: 31, prepare: largeAgainstSmall(ownPart)},
		{name: "git_alloc_100k_vs_1k", unit: "B", rounds: 15, prepare: largeAgainstSmall(allocated)},
		{name: "git_commit_100files_vs_fastimport", unit: "ms", rounds: 9, prepare: manyFiles},
		{name: "git_cold_start_vs_fetch", unit: "ms", rounds: 9, prepare: coldStart},
		{name: "git_batch40_vs_single", unit: "ms", rounds: 3, prepare: batch},
		{name: "git_flatdir20k_bytes", unit: "B", rounds: 3, prepare: flatDirectory},
	}
}

// onRemote prepares sides on a remote that closes with them.
func onRemote(ctx context.Context, l layout, prepare func(*gitRemote) (sides, error)) (sides, error) {
	r, err := newGitRemote(ctx, l)
	if err != nil {
		return sides{}, err
	}
	s, err := prepare(r)
	if err != nil {
		return sides{}, errors.Join(err, r.close(ctx))
	}
	s.close = r.close
	return s, nil
}

// measure is one side of a benchmark.
type measure = func(ctx context.Context, round int) (float64, error)

// peer prepares what commits files, with another value each round, pushes them and
// returns the milliseconds.
type peer = func(r *gitRemote, ctx context.Context, paths []string) (measure, error)

func against(l layout, paths []string, other peer) func(context.Context) (sides, error) {
	return func(ctx context.Context) (sides, error) {
		return onRemote(ctx, l, func(r *gitRemote) (sides, error) {
			ours, err := r.writer(oursBranch)
			if err != nil {
				return sides{}, err
			}
			theirs, err := other(r, ctx, paths)
			return sides{
				ours: func(ctx context.Context, round int) (float64, error) {
					return ours.timed(ctx, fmt.Sprint("round ", round), paths...)
				},
				peer: theirs,
			}, err
		})
	}
}

// oneFileAgainst commits one changed file to the large repository and pushes it.
func oneFileAgainst(other peer) func(context.Context) (sides, error) {
	return against(large(), []string{large().path(500, 50)}, other)
}

// manyFiles commits 100 changed files, each in another directory.
func manyFiles(ctx context.Context) (sides, error) {
	paths := make([]string, 100)
	for i := range paths {
		paths[i] = large().path(i*10, i)
	}
	return against(large(), paths, (*gitRemote).fastImport)(ctx)
}
