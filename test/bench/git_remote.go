// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// layout of a repository: that many directories with that many files each, and
// so many commits of one file after the first.
type layout struct{ directories, files, history int }

func (l layout) path(directory, file int) string {
	return fmt.Sprintf("team-%04d/settings-%05d.yaml", directory, file)
}

// manifest is what the files hold: a few lines, as the objects of a cluster have.
func manifest(path, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  labels:\n    file: %s\ndata:\n  value: %q\n", path, value)
}

const (
	// oursBranch and peerBranch start at the same commit.
	oursBranch = "ours"
	peerBranch = "peer"
	person     = "alice <alice@example.com>"
)

// gitRemote is one bare repository, served by a process of its own, and a place
// for the files of both sides. Both push to it, each to its own branch.
type gitRemote struct {
	layout

	dir    string
	bare   *gitserver.Repository
	server *gitServer
	url    string
	// last in, first out
	closers []func() error
}

// newGitRemote prepares the repository with git fast-import. On an error all that
// was started has ended.
func newGitRemote(ctx context.Context, l layout) (_ *gitRemote, err error) {
	r := &gitRemote{layout: l}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close(ctx))
		}
	}()
	if r.dir, err = os.MkdirTemp("", "kommit-bench-"); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { return os.RemoveAll(r.dir) })
	served := filepath.Join(r.dir, "served")
	if err := os.Mkdir(served, 0o700); err != nil {
		return nil, err
	}
	maker, err := gitserver.Start(ctx, gitserver.Config{Dir: served})
	if err != nil {
		return nil, err
	}
	r.bare, err = maker.Create(ctx, "repo.git")
	if err := errors.Join(err, maker.Close()); err != nil {
		return nil, err
	}
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	if r.server, err = startGitServer(ctx, served); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, r.server.end)
	r.url = r.server.url + "/repo.git"
	return r, nil
}

func (r *gitRemote) close(context.Context) error {
	var err error
	for _, end := range slices.Backward(r.closers) {
		err = errors.Join(err, end())
	}
	return err
}

// fill makes the commits and both branches.
func (r *gitRemote) fill(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "git", "fast-import", "--quiet")
	cmd.Dir, cmd.Stderr = r.bare.Dir, os.Stderr
	// fast-import grows and shrinks its heap with each object; where the kernel is
	// slow at that, it would take half a minute.
	cmd.Env = append(gitEnvironment(), "MALLOC_TRIM_THRESHOLD_=1073741824", "MALLOC_TOP_PAD_=67108864")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = errors.Join(r.stream(in), in.Close(), cmd.Wait())
	for _, branch := range []string{oursBranch, peerBranch} {
		if err == nil {
			_, err = r.bare.Git(ctx, "branch", branch, "main")
		}
	}
	return err
}

func (r *gitRemote) stream(to io.Writer) error {
	w := bufio.NewWriterSize(to, 1<<20)
	commit := func(n int) {
		fmt.Fprintf(w, "commit refs/heads/main\ncommitter %s %d +0000\ndata 5\nMade\n\n", person, 1_700_000_000+n)
	}
	file := func(path, value string) {
		content := manifest(path, value)
		fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", path, len(content), content)
	}
	fmt.Fprintln(w, "feature done")
	commit(0)
	for d := range r.directories {
		for f := range r.files {
			path := r.path(d, f)
			file(path, "of "+path)
		}
	}
	for n := range r.history {
		commit(n + 1)
		file(r.path(n*7%r.directories, n%r.files), fmt.Sprint("commit ", n))
	}
	fmt.Fprintln(w, "done")
	return w.Flush()
}

// open is kommit's side, with nothing cached.
func (r *gitRemote) open() (*git.Repository, error) {
	return git.NewRepository(git.Config{URL: r.url, AllowInsecureHTTP: true})
}

// writer pushes with kommit.
type writer struct {
	remote *gitRemote
	repo   *git.Repository
	branch string
}

func (r *gitRemote) writer(branch string) (*writer, error) {
	repo, err := r.open()
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { repo.Close(); return nil })
	return &writer{remote: r, repo: repo, branch: branch}, nil
}

// editOf is a commit that gives the files this value.
func editOf(value string, paths ...string) git.Commit {
	who := git.Signature{Name: "alice", Email: "alice@example.com", When: time.Now()}
	return git.Commit{
		Author: who, Committer: who,
		Edit: func(context.Context, *git.Tree) ([]git.File, error) {
			files := make([]git.File, len(paths))
			for i, path := range paths {
				files[i] = git.File{Path: path, Content: []byte(manifest(path, value))}
			}
			return files, nil
		},
		Message: func([]string) string { return value },
	}
}

// push pushes the commits, and sees that all of them were made.
func (w *writer) push(ctx context.Context, commits ...git.Commit) error {
	built, err := w.repo.Push(ctx, w.branch, commits, nil)
	if err != nil {
		return err
	}
	for _, b := range built {
		if b.Err != nil || b.Hash == "" {
			return fmt.Errorf("a commit was not made: %+v", b)
		}
	}
	return nil
}

// timed is the milliseconds that a push of one commit takes.
func (w *writer) timed(ctx context.Context, value string, paths ...string) (float64, error) {
	commit := editOf(value, paths...)
	began := time.Now()
	if err := w.push(ctx, commit); err != nil {
		return 0, err
	}
	return milliseconds(began), nil
}

// gitEnvironment hides the git configuration of this machine.
func gitEnvironment() []string {
	return append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_TERMINAL_PROMPT=0")
}
