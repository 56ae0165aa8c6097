// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures kommit against others that do the same job. Both sides
// run in turn, in one run, on one machine; what counts is their ratio. Each
// benchmark prints one line:
//
//	BENCH <name> ours=<n> peer=<n> ratio=<ours/peer> unit=<u>
//
// All figures are costs: lower is better.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// benchmark is a named comparison.
type benchmark struct {
	name string
	// unit of both figures.
	unit string
	// rounds are measured after one that is not counted.
	rounds int
	// prepare returns what does the job once, on our side and on the peer's, and
	// what cleans up.
	prepare func(context.Context) (sides, error)
}

// sides measure the cost of doing a job once.
type sides struct {
	ours, peer func(ctx context.Context, round int) (float64, error)
	close      func(context.Context) error
}

// benchmarks are all there are.
func benchmarks() []benchmark {
	all := []benchmark{
		{name: "save_latency", unit: "ms", rounds: saveRounds, prepare: saveLatency},
		{name: "window_event_10k_vs_10", unit: "ns", rounds: windowRounds, prepare: windowEvent},
		{name: "window_idle_wake", unit: "ns", rounds: windowRounds, prepare: windowIdleWake},
		{name: "saves_200_p99_vs_p50", unit: "ms", rounds: crowdRounds, prepare: savesOfMany},
	}
	return slices.Concat(all, captureBenchmarks(), journalBenchmarks(), gitBenchmarks(), storageBenchmarks())
}

func main() {
	pattern := flag.String("bench", ".", "run the benchmarks whose name matches this regular expression")
	serve := flag.String("serve-git", "", "measure nothing, but serve the git repositories in this directory to a bench that does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	job := func() error { return run(ctx, *pattern) }
	if *serve != "" {
		job = func() error { return serveGit(ctx, *serve) }
	}
	if err := job(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pattern string) error {
	selected, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("-bench: %w", err)
	}
	found := false
	for _, b := range benchmarks() {
		if !selected.MatchString(b.name) {
			continue
		}
		found = true
		if err := b.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	if !found {
		return fmt.Errorf("no benchmark matches %q", pattern)
	}
	return nil
}

func (b benchmark) run(ctx context.Context) (err error) {
	s, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closed := s.close(context.WithoutCancel(ctx)); err == nil {
			err = closed
		}
	}()
	var ours, peer []float64
	for round := range b.rounds + 1 {
		o, err := s.ours(ctx, round)
		if err != nil {
			return fmt.Errorf("ours, round %d: %w", round, err)
		}
		p, err := s.peer(ctx, round)
		if err != nil {
			return fmt.Errorf("peer, round %d: %w", round, err)
		}
		if round > 0 {
			ours, peer = append(ours, o), append(peer, p)
		}
	}
	fmt.Printf("BENCH %s ours=%.4g peer=%.4g ratio=%.3f unit=%s\n", b.name, median(ours), median(peer), median(ours)/median(peer), b.unit)
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2
	}
	return values[middle]
}

// milliseconds since then.
func milliseconds(then time.Time) float64 {
	return float64(time.Since(then)) / float64(time.Millisecond)
}
