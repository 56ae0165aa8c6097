// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress reads what `go build -v` writes, one line for each package that it
// had to build, and reports from time to time. Safe for concurrent use.
type progress struct {
	log   io.Writer
	total int
	start time.Time

	mu      sync.Mutex
	partial []byte
	built   int
	last    string
	said    int      // built, as of the last status
	other   []string // lines that name no package: errors
}

func newProgress(log io.Writer, total int) *progress {
	return &progress{log: log, total: total, start: time.Now()}
}

// Write never fails.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.partial = append(p.partial, b...)
	for {
		line, rest, ok := bytes.Cut(p.partial, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.partial = rest
		p.line(string(line))
	}
}

func (p *progress) line(line string) {
	switch {
	case strings.HasPrefix(line, "go: downloading "), line == "":
	case strings.ContainsAny(line, " \t#:"):
		p.other = append(p.other, line)
	default:
		p.built++
		p.last = line
	}
}

// report writes a line each interval until stop is called.
func (p *progress) report(interval time.Duration) (stop func()) {
	ticker := time.NewTicker(interval)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintln(p.log, p.status(time.Now()))
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

func (p *progress) status(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := now.Sub(p.start).Round(time.Second)
	compiled := p.built - p.said
	p.said = p.built
	if compiled == 0 { // go says nothing while it links, which takes a while
		return fmt.Sprintf("  %6s  %d packages compiled, linking", elapsed, p.built)
	}
	return fmt.Sprintf("  %6s  %d packages compiled of %d less the cached ones, now %s", elapsed, p.built, p.total, p.last)
}

// complaints is what the build said beside package names.
func (p *progress) complaints() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(append(p.other, string(p.partial)), "\n")
}
