// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/pkg/failpoint"
)

// everything is the number of kills from which on slow faults are part of it.
const everything = 100

var (
	kills = flag.Int("kills", 20, "how often kommit-apiserver is killed, at least; from 100 on with every fault")
	seed  = flag.Uint64("seed", 0, "what is random is the same with the same seed; 0 takes one from the clock")
)

// D1–D5: whenever the server is killed, what the authors did is in Git once, in their
// names, and each request ends once, with the truth.
func TestNothingIsLostDoubledOrBlamedOnOthers(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano()) % 1_000_000
	}
	w := begin(t, s)
	t.Run("killed at random and named instants", func(t *testing.T) {
		w.phase(t, func(ctx context.Context) error {
			return w.killer.run(ctx, w.killer.plan(*kills, failpoint.Names()))
		})
	})
	for _, f := range faults() {
		if !f.quick && *kills < everything {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			w.history.setBlind(f.blind)
			defer w.history.setBlind(false)
			w.phase(t, func(ctx context.Context) error { return f.under(ctx, w, max(1, *kills/20)) })
		})
	}
	w.report(t)
}

func begin(t *testing.T, s uint64) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "kommit-chaos-") //nolint:usetesting // it is kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(t.Context(), Config{Dir: dir, Log: os.Stderr, Seed: s})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := w.stop(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("logs, repository and storage are kept in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// phase lets the authors work during something, and verifies all that was done until
// then.
func (w *world) phase(t *testing.T, during func(context.Context) error) {
	t.Helper()
	if err := w.work(t.Context(), during); err != nil {
		t.Fatal(err)
	}
	if err := w.settle(t.Context()); err != nil {
		t.Errorf("it does not settle: %v", err)
	}
	findings, err := w.verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range findings {
		t.Error(f)
		if i < 5 {
			t.Log("\n" + w.explain(t.Context(), f))
		}
	}
}

// report prints the sum of it.
func (w *world) report(t *testing.T) {
	t.Helper()
	findings, err := w.verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dropped, err := w.droppedEvents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	edits, blind, found := 0, 0, map[Kind]int{}
	for _, e := range w.history.Edits() {
		if e.Outcome == Accepted {
			edits++
			if e.Blind {
				blind++
			}
		}
	}
	for _, f := range findings {
		found[f.Kind]++
	}
	fmt.Fprintf(os.Stdout, "\nCHAOS kills=%d edits=%d lost=%d doubled=%d misattributed=%d requests=%d unresolved=%d\n",
		w.killer.kills, edits, found[Lost], found[Doubled], found[Misattributed], len(w.requests.All()), found[Unresolved])
	fmt.Fprintf(os.Stdout, "seed=%d audit-events-dropped=%v blind-edits=%d other-findings=%d killed-at=%v\n",
		w.config.Seed, dropped, blind, len(findings)-found[Lost]-found[Doubled]-found[Misattributed]-found[Unresolved], w.killer.by)
}
