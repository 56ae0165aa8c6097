// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// clone clones the remote with the git command and returns where.
func (r *gitRemote) clone(ctx context.Context, name string, args ...string) (string, error) {
	dir := filepath.Join(r.dir, name)
	err := gitCommand(ctx, "git", append([]string{"clone", "--quiet", "--branch", peerBranch,
		"--config", "gc.auto=0", "--config", "user.name=alice", "--config", "user.email=alice@example.com", r.url, dir}, args...)...)
	// The server syncs refs; it shall not wait for the files of a checkout.
	syscall.Sync()
	return dir, err
}

// shell is the milliseconds that a script takes.
func shell(ctx context.Context, dir, script string) (float64, error) {
	began := time.Now()
	if err := gitCommand(ctx, "sh", "-c", "cd '"+dir+"' && "+script); err != nil {
		return 0, err
	}
	return milliseconds(began), nil
}

// commandLine adds, commits and pushes in a checkout.
func (r *gitRemote) commandLine(ctx context.Context, paths []string) (measure, error) {
	dir, err := r.clone(ctx, "checkout")
	return func(ctx context.Context, round int) (float64, error) {
		for _, path := range paths {
			if err := os.WriteFile(filepath.Join(dir, path), []byte(manifest(path, fmt.Sprint("peer ", round))), 0o600); err != nil {
				return 0, err
			}
		}
		return shell(ctx, dir, fmt.Sprintf("git add %s && git commit --quiet -m 'Round %d' && git push --quiet origin %s", strings.Join(paths, " "), round, peerBranch))
	}, err
}

// importStream is one commit as git fast-import reads it.
func importStream(branch string, round int, paths []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "feature done\ncommit refs/heads/%s\ncommitter %s %d +0000\ndata 5\nRound\nfrom refs/heads/%s^0\n", branch, person, time.Now().Unix(), branch)
	for _, path := range paths {
		content := manifest(path, fmt.Sprint("peer ", round))
		fmt.Fprintf(&b, "M 100644 inline %s\ndata %d\n%s\n", path, len(content), content)
	}
	b.WriteString("done\n")
	return b.Bytes()
}

// fastImport runs git fast-import, and pushes, in a bare clone.
func (r *gitRemote) fastImport(ctx context.Context, paths []string) (measure, error) {
	dir, err := r.clone(ctx, "bare.git", "--bare")
	return func(ctx context.Context, round int) (float64, error) {
		stream := filepath.Join(r.dir, "stream")
		if err := os.WriteFile(stream, importStream(peerBranch, round, paths), 0o600); err != nil {
			return 0, err
		}
		return shell(ctx, dir, fmt.Sprintf("git fast-import --quiet <'%s' && git push --quiet origin %s", stream, peerBranch))
	}, err
}

// preparedPack sends a pack that git made beforehand: the two requests of a push
// and nothing else.
func (r *gitRemote) preparedPack(ctx context.Context, paths []string) (measure, error) {
	dir, err := r.clone(ctx, "bare.git", "--bare")
	return func(ctx context.Context, round int) (float64, error) {
		before, err := r.bare.Head(ctx, peerBranch)
		if err != nil {
			return 0, err
		}
		imported := exec.CommandContext(ctx, "git", "-C", dir, "fast-import", "--quiet")
		imported.Stdin, imported.Env = bytes.NewReader(importStream(peerBranch, round, paths)), gitEnvironment()
		if out, err := imported.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("git fast-import: %w: %s", err, out)
		}
		packed := exec.CommandContext(ctx, "git", "-C", dir, "pack-objects", "--revs", "--thin", "--stdout", "--quiet")
		packed.Stdin, packed.Env = strings.NewReader(peerBranch+"\n^"+before+"\n"), gitEnvironment()
		pack, err := packed.Output()
		if err != nil {
			return 0, fmt.Errorf("git pack-objects: %w", err)
		}
		after, err := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", peerBranch).Output()
		if err != nil {
			return 0, err
		}
		ref := "refs/heads/" + peerBranch
		command := fmt.Sprintf("%s %s %s\x00 report-status side-band-64k quiet agent=bench", before, strings.TrimSpace(string(after)), ref)
		request := append(fmt.Appendf(nil, "%04x%s0000", len(command)+4, command), pack...)

		began := time.Now()
		if _, err := r.ask(ctx, http.MethodGet, "/info/refs?service=git-receive-pack", nil); err != nil {
			return 0, err
		}
		answer, err := r.ask(ctx, http.MethodPost, "/git-receive-pack", request)
		if err == nil && !bytes.Contains(answer, []byte("ok "+ref)) {
			err = fmt.Errorf("the prepared pack was not taken: %q", answer)
		}
		return milliseconds(began), err
	}, err
}

// ask sends one request and reads the answer.
func (r *gitRemote) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return answer, err
}
