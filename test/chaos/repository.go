// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kommit-dev/kommit/test/gitserver"
)

// branch that all is committed to.
const branch = "main"

// Repository is a branch as a clone shows it.
type Repository struct {
	// Commits, the oldest first.
	Commits []Commit
	// Files of the last one: each one's data by its path.
	Files map[string]map[string]string
}

// Commit is one with what it did.
type Commit struct {
	Hash, Author, Message string
	// Added are the lines that it added, by path, without indentation.
	Added map[string][]string
	// Deleted are the paths of the files that it removed.
	Deleted []string
	// Changes is the number of files that it changed.
	Changes int
}

// readRepository clones it into dir, which does not exist yet, and reads that.
func readRepository(ctx context.Context, from *gitserver.Repository, dir string) (Repository, error) {
	r := Repository{Files: map[string]map[string]string{}}
	if _, err := from.Git(ctx, "clone", "--quiet", "--branch="+branch, "file://"+from.Dir, dir); err != nil {
		return r, err
	}
	log, err := from.Git(ctx, "-C", dir, "log", "--reverse", "--topo-order", "--patch", "--unified=0", "--no-renames", "--no-color", "--no-ext-diff",
		"--format=%x01%H%x00%an%x00%B%x02")
	if err != nil {
		return r, err
	}
	for part := range strings.SplitSeq(log, "\x01") {
		if part == "" {
			continue
		}
		c, err := parseCommit(part)
		if err != nil {
			return r, err
		}
		r.Commits = append(r.Commits, c)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var object corev1.ConfigMap
		if err := yaml.UnmarshalStrict(content, &object); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		relative, err := filepath.Rel(dir, path)
		r.Files[filepath.ToSlash(relative)] = object.Data
		return err
	})
	return r, err
}

// parseCommit reads what readRepository has git log print for one.
func parseCommit(part string) (Commit, error) {
	header, patch, ok := strings.Cut(part, "\x02")
	fields := strings.SplitN(header, "\x00", 3)
	if !ok || len(fields) != 3 {
		return Commit{}, fmt.Errorf("this is not a commit of git log: %q", part)
	}
	c := Commit{Hash: fields[0], Author: fields[1], Message: strings.TrimRight(fields[2], "\n"), Added: map[string][]string{}}
	path, inHunk := "", false
	lines := bufio.NewScanner(strings.NewReader(patch))
	lines.Buffer(nil, 16<<20)
	deleted := false
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "diff --git "):
			path, inHunk, deleted = "", false, false
			c.Changes++
		case strings.HasPrefix(line, "@@ "):
			inHunk = true
		case inHunk && strings.HasPrefix(line, "+"):
			c.Added[path] = append(c.Added[path], strings.TrimSpace(line[1:]))
		case inHunk:
		case strings.HasPrefix(line, "deleted file mode "):
			deleted = true
		case strings.HasPrefix(line, "--- a/") && deleted:
			c.Deleted = append(c.Deleted, strings.TrimPrefix(line, "--- a/"))
		case strings.HasPrefix(line, "+++ b/"):
			path = strings.TrimPrefix(line, "+++ b/")
		}
	}
	return c, lines.Err()
}
