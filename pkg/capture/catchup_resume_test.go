// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// 5.5: after a resume, too, a save holds what was done before it, and waits until the
// watch has told of it: lists of the past show nothing of it.
func TestCatchUpAfterAResume(t *testing.T) {
	tests := map[string]struct {
		meanwhile func(*bench)
		want      []string
	}{
		"deleted":            {func(b *bench) { b.dropped("bob", "x") }, []string{"a delete configmaps/x bob"}},
		"changed":            {func(b *bench) { b.wrote("bob", "x", "2") }, []string{"a update configmaps/x bob"}},
		"made":               {func(b *bench) { b.wrote("bob", "y", "1") }, []string{"a create configmaps/y bob"}},
		"deleted and remade": {func(b *bench) { b.dropped("bob", "x"); b.wrote("carol", "x", "1") }, []string{"a delete configmaps/x bob", "a create configmaps/x carol"}},
		"left the selector": {func(b *bench) {
			uid, version := b.write(configMaps, configMap("x", "1", labelled("app", "no")))
			b.says("bob", uid, version)
		}, []string{"a delete configmaps/x bob"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{cluster: newCluster(), audit: newAudit(grace), branches: &branches{}, discovery: newDiscovery()}
				kept := newBook()
				selecting := func(b *bench) {
					entry := core("configmaps")
					entry.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"no"}},
					}}
					b.target("a")
					b.rules.Add(newRule("r", "a", entry))
				}
				b.start(t, kept, selecting)
				b.wrote("alice", "x", "1")
				b.expect(t, "a create configmaps/x alice")
				time.Sleep(2 * placeInterval)
				b.kill()
				test.meanwhile(b)
				b.set(func() { b.down, b.silent[configMaps] = true, true })
				b.start(t, kept, selecting)
				proof := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					proof <- b.capture.CatchUp(ctx, targetA)
				}()
				unproven := func(when string) {
					time.Sleep(time.Minute)
					select {
					case err := <-proof:
						t.Fatalf("proven %s: %v", when, err)
					default:
					}
				}
				unproven("before anything was listed")
				b.set(func() { b.down = false })
				unproven("by a list of the past")
				b.set(func() { b.silent[configMaps] = false })
				b.release(configMaps)
				if err := <-proof; err != nil {
					t.Error(err)
				}
				if got := b.take(); !slices.Equal(got, test.want) {
					t.Errorf("by then the sink had %q, want %q", got, test.want)
				}
			})
		})
	}
}

// 5.5: what was not taken keeps a save waiting for as long as it may.
func TestCatchUpWaitsForWhatIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newDurable(t)
		b.branches.end()
		b.wrote("bob", "x", "2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var lag *LagError
		if err := b.capture.CatchUp(ctx, targetA); !errors.As(err, &lag) || lag.Object != "x" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
