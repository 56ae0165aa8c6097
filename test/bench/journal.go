// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
	"github.com/kommit-dev/kommit/pkg/window"
)

const (
	journalRounds = 7
	// replayedChanges are in replayedWindows, each of about so many bytes.
	replayedChanges = 100_000
	replayedWindows = 100
	replayedBytes   = 500
)

func journalBenchmarks() []benchmark {
	return []benchmark{
		{name: "journal_capture_overhead", unit: "us", rounds: journalRounds, prepare: journalCaptureOverhead},
		{name: "journal_replay_100k", unit: "ms", rounds: journalRounds, prepare: journalReplay},
	}
}

// openJournal is a journal on a file of its own, and what removes it.
func openJournal(ctx context.Context) (*bolt.DB, *journal.Writer, func() error, error) {
	dir, err := os.MkdirTemp("", "kommit-bench-")
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	db, err := bolt.Open(ctx, bolt.Config{Path: filepath.Join(dir, "kommit.db")})
	if err != nil {
		stop()
		return nil, nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	rows, done := journal.NewWriter(journal.NewRows(db, "saving")), make(chan struct{})
	go func() {
		defer close(done)
		rows.Run(ctx)
	}()
	return db, rows, func() error {
		stop()
		<-done
		return errors.Join(db.Close(), os.RemoveAll(dir))
	}, nil
}

// journalCaptureOverhead is the time of one of many events from the watch to its
// window, and on disk. The peer is the same without a journal.
func journalCaptureOverhead(ctx context.Context) (sides, error) {
	object, err := recordDeployment(ctx)
	if err != nil {
		return sides{}, err
	}
	_, rows, remove, err := openJournal(ctx)
	if err != nil {
		return sides{}, err
	}
	ours, err := newPipeline(ctx, recovery.New(rows))
	if err != nil {
		return sides{}, errors.Join(err, remove())
	}
	peer, err := newPipeline(ctx, nil)
	if err != nil {
		return sides{}, errors.Join(err, ours.close(ctx), remove())
	}
	play := func(pipe *pipeline) func(context.Context, int) (float64, error) {
		made := &recordings{object: object, version: 1_000_000}
		return func(ctx context.Context, _ int) (float64, error) {
			played, err := made.next(eventsPerRound, objectsInWindow)
			if err != nil {
				return 0, err
			}
			return pipe.play(ctx, played, elapsedCost)
		}
	}
	return sides{
		ours: play(ours),
		peer: play(peer),
		close: func(ctx context.Context) error {
			return errors.Join(ours.close(ctx), peer.close(ctx), remove())
		},
	}, nil
}

// elapsedCost measures what one of so many takes, in microseconds.
func elapsedCost(many int, work func() error) (float64, error) {
	began := time.Now()
	err := work()
	return float64(time.Since(began).Nanoseconds()) / 1000 / float64(many), err
}

// journalReplay is the time in which a process has all windows open again. The peer
// reads the same rows in order, as bytes of its own.
func journalReplay(ctx context.Context) (sides, error) {
	db, rows, remove, err := openJournal(ctx)
	if err != nil {
		return sides{}, err
	}
	kept := recovery.New(rows)
	engine := window.New(window.Config{})
	now := time.Now()
	shared := func(types.NamespacedName) bool { return false }
	target := types.NamespacedName{Namespace: "default", Name: "prod"}
	engine.SetTarget(now, window.Target{Name: target})
	content := []byte(strings.Repeat("x", replayedBytes))
	for i := range replayedChanges {
		kept.Effects(now, engine.Change(now, window.Change{
			Target: target, Object: window.Object{Group: "apps", Resource: "deployments", Namespace: "default", Name: fmt.Sprintf("web-%06d", i)},
			UID: types.UID(fmt.Sprintf("8f14e45f-ceea-467f-a9d0-%012d", i)), ResourceVersion: fmt.Sprint(1_000_000 + i),
			Author: window.Author{Username: fmt.Sprintf("user-%d", i%replayedWindows)}, Operation: window.Update, Manifest: content,
		}), shared)
		if err := rows.Room(ctx); err != nil {
			return sides{}, errors.Join(err, remove())
		}
	}
	// Capture says where it is every second.
	kept.Passed(recovery.Source{Group: "apps", Resource: "deployments", Namespace: "default"}, fmt.Sprint(1_000_000+replayedChanges), []byte("{}"))
	if err := rows.Sync(ctx); err != nil {
		return sides{}, errors.Join(err, remove())
	}
	return sides{
		ours: func(ctx context.Context, _ int) (float64, error) {
			began := time.Now()
			left, err := recovery.New(journal.NewWriter(journal.NewRows(db, "saving"))).Load(ctx)
			if err != nil {
				return 0, err
			}
			restored, _ := window.Restore(window.Config{}, time.Now(), left.State)
			took := milliseconds(began)
			if open := restored.Windows(); len(open) != replayedWindows || len(restored.Open(target)) != replayedChanges {
				return 0, fmt.Errorf("%d windows are open with %d changes", len(open), len(restored.Open(target)))
			}
			return took, nil
		},
		peer: func(context.Context, int) (float64, error) {
			began := time.Now()
			var all [][]byte
			if err := db.View(func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte("journal/saving")).ForEach(func(_, row []byte) error {
					all = append(all, append([]byte(nil), row...))
					return nil
				})
			}); err != nil {
				return 0, err
			}
			took := milliseconds(began)
			if len(all) < replayedChanges {
				return 0, fmt.Errorf("%d rows", len(all))
			}
			return took, nil
		},
		close: func(context.Context) error { return remove() },
	}, nil
}
