// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gogit is a peer of the benchmarks: it commits and pushes with go-git's
// worktree. It is a module of its own because the worktree needs modules that
// nothing else here does.
//
// The arguments are a checkout and the branch to push. For each path that stands
// on a line of its input, whose file has been changed, it adds the file, commits
// and pushes, and prints the nanoseconds that this took.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing/object"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gogit CHECKOUT BRANCH")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gogit:", err)
		os.Exit(1)
	}
}

func run(dir, branch string) error {
	repository, err := git.PlainOpen(dir)
	if err != nil {
		return err
	}
	worktree, err := repository.Worktree()
	if err != nil {
		return err
	}
	refs := config.RefSpec("refs/heads/" + branch + ":refs/heads/" + branch)
	paths := bufio.NewScanner(os.Stdin)
	for paths.Scan() {
		began := time.Now()
		if _, err := worktree.Add(paths.Text()); err != nil {
			return err
		}
		who := &object.Signature{Name: "alice", Email: "alice@example.com", When: began}
		if _, err := worktree.Commit("Round", &git.CommitOptions{Author: who, Committer: who}); err != nil {
			return err
		}
		if err := repository.Push(&git.PushOptions{RefSpecs: []config.RefSpec{refs}}); err != nil {
			return err
		}
		fmt.Println(time.Since(began).Nanoseconds())
	}
	return paths.Err()
}
