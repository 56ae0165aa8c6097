// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kommit-dev/kommit/test/gitserver"
)

// meterPath is where a metered server tells what it did since it was last asked.
const meterPath = "/.meter"

// serveGit serves the repositories in a directory until stdin ends. It is what
// startGitServer runs in a process of its own, so that neither its time nor its
// memory is counted as that of the client. It prints its URL.
func serveGit(ctx context.Context, dir string) error {
	m := &meter{}
	s, err := gitserver.Start(ctx, gitserver.Config{Dir: dir, Wrap: m.wrap})
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Close())
}

// meter counts what a server does.
type meter struct{ nanoseconds, received atomic.Int64 }

func (m *meter) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == meterPath {
			_, _ = fmt.Fprintln(w, m.nanoseconds.Swap(0), m.received.Swap(0))
			return
		}
		began := time.Now()
		next.ServeHTTP(w, r)
		m.nanoseconds.Add(time.Since(began).Nanoseconds())
		m.received.Add(max(0, r.ContentLength))
	})
}

// served is what a server did.
type served struct {
	busy time.Duration
	// received bytes of the bodies of requests.
	received int64
}

// gitServer is a serving process.
type gitServer struct {
	url string
	// end lets the process end, and waits for it.
	end func() error
}

func startGitServer(ctx context.Context, dir string) (*gitServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-serve-git", dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end := func() error { return errors.Join(in.Close(), cmd.Wait()) }
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the git server did not start: %w", err), end())
	}
	return &gitServer{url: strings.TrimSpace(url), end: end}, nil
}

// served since it was last asked.
func (s *gitServer) served(ctx context.Context) (served, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+meterPath, nil)
	if err != nil {
		return served{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return served{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var out served
	_, err = fmt.Fscan(resp.Body, &out.busy, &out.received)
	return out, err
}
