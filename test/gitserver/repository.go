// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Repository is one bare repository that a Server serves.
type Repository struct {
	// Name below the server's URL.
	Name string
	// Dir is where it is.
	Dir string
	// URL to push to.
	URL string

	server *Server
}

// settings of every repository. Housekeeping in the background would outlive a test.
const settings = `[http]
	receivepack = true
[receive]
	fsckObjects = true
	autogc = false
[gc]
	auto = 0
`

// Create makes an empty bare repository whose HEAD is main. args are further ones
// of git init, such as --object-format=sha256.
func (s *Server) Create(ctx context.Context, name string, args ...string) (*Repository, error) {
	r := s.Repository(name)
	// Without a template there are no sample hooks to copy, and no hooks directory.
	init := append([]string{"init", "--quiet", "--bare", "--initial-branch=main", "--template="}, args...)
	if _, err := s.run(ctx, s.config.Dir, nil, append(init, r.Dir)...); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(r.Dir, "hooks"), 0o755); err != nil { // #nosec G301 -- as git makes it
		return nil, err
	}
	config, err := os.OpenFile(filepath.Join(r.Dir, "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = config.WriteString(settings)
	if err := errors.Join(err, config.Close()); err != nil {
		return nil, err
	}
	return r, nil
}

// Repository is one that exists already.
func (s *Server) Repository(name string) *Repository {
	return &Repository{Name: name, Dir: filepath.Join(s.config.Dir, name), URL: s.URL() + "/" + name, server: s}
}

// Git runs a git command in the repository and returns what it prints, without
// the last line break.
func (r *Repository) Git(ctx context.Context, args ...string) (string, error) {
	return r.server.run(ctx, r.Dir, nil, args...)
}

// Configure sets one value of the repository's configuration.
func (r *Repository) Configure(ctx context.Context, key, value string) error {
	_, err := r.Git(ctx, "config", key, value)
	return err
}

// InstallHook makes the script the hook of that name: pre-receive, update,
// post-receive. An empty one removes it.
func (r *Repository) InstallHook(name, script string) error {
	file := filepath.Join(r.Dir, "hooks", name)
	if script == "" {
		return os.Remove(file)
	}
	if !strings.HasPrefix(script, "#!") {
		script = "#!/bin/sh\n" + script
	}
	// Written aside first: a script that is open for writing cannot be run.
	if err := os.WriteFile(file+".new", []byte(script), 0o755); err != nil { // #nosec G306 -- hooks are executable
		return err
	}
	return os.Rename(file+".new", file)
}

// Fsck checks every object, and that nothing is missing.
func (r *Repository) Fsck(ctx context.Context) error {
	_, err := r.Git(ctx, "fsck", "--strict", "--full", "--no-dangling", "--no-progress")
	return err
}

// Head is the hash that the branch is at, empty when there is no such branch.
func (r *Repository) Head(ctx context.Context, branch string) (string, error) {
	out, err := r.Git(ctx, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
	return out, err
}

// Log is git log of the branch, with further arguments; empty without the branch.
func (r *Repository) Log(ctx context.Context, branch string, args ...string) (string, error) {
	if head, err := r.Head(ctx, branch); err != nil || head == "" {
		return "", err
	}
	return r.Git(ctx, append(append([]string{"log"}, args...), "refs/heads/"+branch, "--")...)
}

// Show is the content of a file at a revision.
func (r *Repository) Show(ctx context.Context, revision, path string) (string, error) {
	cmd := []string{"cat-file", "blob", revision + ":" + path}
	out, err := r.server.run(ctx, r.Dir, nil, cmd...)
	if err != nil {
		return "", err
	}
	// run cut the last line break off; the size tells whether there was one.
	size, err := r.Git(ctx, "cat-file", "-s", revision+":"+path)
	if err != nil {
		return "", err
	}
	if size != fmt.Sprint(len(out)) {
		out += "\n"
	}
	return out, nil
}

// Files lists the paths of all files at a revision.
func (r *Repository) Files(ctx context.Context, revision string) ([]string, error) {
	out, err := r.Git(ctx, "ls-tree", "-r", "--name-only", "-z", revision)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(out, func(c rune) bool { return c == 0 }), nil
}

// ForeignCommit is a commit that somebody else makes, by git itself, beside the
// server.
type ForeignCommit struct {
	Message string
	// Author as "Name <email>"; default "Foreign <foreign@example.com>".
	Author string
	// Files by path; the empty string removes one.
	Files map[string]string
	// Modes of files by path, where they are not 100644. For 120000 the content is
	// the link's target, for 160000 it is the commit's hash.
	Modes map[string]string
}

// Commit makes the commit on the branch, which it creates when there is none, and
// returns its hash.
func (r *Repository) Commit(ctx context.Context, branch string, c ForeignCommit) (string, error) {
	if c.Author == "" {
		c.Author = "Foreign <foreign@example.com>"
	}
	parent, err := r.Head(ctx, branch)
	if err != nil {
		return "", err
	}
	var in strings.Builder
	fmt.Fprintf(&in, "feature done\ncommit refs/heads/%s\ncommitter %s now\ndata %d\n%s\n", branch, c.Author, len(c.Message), c.Message)
	if parent != "" {
		fmt.Fprintf(&in, "from %s\n", parent)
	}
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		content, mode := c.Files[path], c.Modes[path]
		switch {
		case content == "":
			fmt.Fprintf(&in, "D %s\n", quote(path))
		case mode == "160000":
			fmt.Fprintf(&in, "M %s %s %s\n", mode, content, quote(path))
		default:
			if mode == "" {
				mode = "100644"
			}
			fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, quote(path), len(content), content)
		}
	}
	in.WriteString("done\n")
	if err := r.Import(ctx, in.String(), "--date-format=now"); err != nil {
		return "", err
	}
	return r.Head(ctx, branch)
}

// Import runs git fast-import on the stream. args are further options of it.
func (r *Repository) Import(ctx context.Context, stream string, args ...string) error {
	_, err := r.server.run(ctx, r.Dir, []byte(stream), append([]string{"fast-import", "--quiet"}, args...)...)
	return err
}

// quote writes a path as fast-import reads it.
func quote(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(path) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, "\\%03o", c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// CommitTree commits a tree that exists already, on the branch.
func (r *Repository) CommitTree(ctx context.Context, branch, tree, author, message string) (string, error) {
	parent, err := r.Head(ctx, branch)
	if err != nil {
		return "", err
	}
	author, email, ok := strings.Cut(strings.TrimSuffix(author, ">"), " <")
	if !ok {
		return "", fmt.Errorf("author %q is not of the form Name <email>", author)
	}
	args := []string{"-c", "user.name=" + author, "-c", "user.email=" + email, "commit-tree", tree, "-m", message}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	hash, err := r.Git(ctx, args...)
	if err != nil {
		return "", err
	}
	old := parent
	if old == "" {
		old = strings.Repeat("0", len(hash))
	}
	_, err = r.Git(ctx, "update-ref", "refs/heads/"+branch, hash, old)
	return hash, err
}

// WriteObject writes one object as it is, however odd, and returns its hash.
func (r *Repository) WriteObject(ctx context.Context, kind string, data []byte) (string, error) {
	return r.server.run(ctx, r.Dir, data, "hash-object", "--literally", "-w", "-t", kind, "--stdin")
}
