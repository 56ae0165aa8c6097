// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo plays kommit's main job, live: a control plane, a Git server and
// kommit on 127.0.0.1, and two people who edit and save. It keeps running until
// Ctrl-C, so that one can go on by hand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/controlplane/build"
	"github.com/kommit-dev/kommit/test/stack"
)

func main() {
	down := flag.Bool("down", false, "stop what an earlier demo left running and delete its state")
	once := flag.Bool("once", false, "end after the story instead of waiting for Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	play := demo
	if *down {
		play = cleanUp
	}
	if err := play(ctx, *once); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// stateDir is the one folder that holds ports, data, kubeconfigs and logs.
func stateDir() (string, error) {
	root, err := build.RepositoryRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, ".cache", "demo"), nil
}

func cleanUp(ctx context.Context, _ bool) error {
	dir, err := stateDir()
	if err != nil {
		return err
	}
	if err := controlplane.Down(ctx, dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	fmt.Println("nothing is left of the demo")
	return nil
}

func demo(ctx context.Context, once bool) (err error) {
	dir, err := stateDir()
	if err != nil {
		return err
	}
	// The story begins with an empty repository and an empty cluster. Logs of the
	// last run go with the rest: a new run writes its own.
	if err := errors.Join(controlplane.Down(ctx, dir), os.RemoveAll(dir)); err != nil {
		return err
	}
	s, err := stack.Start(ctx, stack.Config{Dir: dir, Log: os.Stderr})
	if err != nil {
		return fmt.Errorf("%w\nlogs are in %s", err, filepath.Join(dir, "log"))
	}
	defer func() {
		// ctx has ended by then.
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, s.Stop(stopping))
	}()
	st := &story{stack: s, out: os.Stdout}
	if err := st.tell(ctx); err != nil {
		return fmt.Errorf("%w\nlogs are in %s", err, s.ControlPlane.LogDir())
	}
	if once {
		return nil
	}
	if err := s.ControlPlane.Wait(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Println("\nstopping; `make demo-down` deletes the state")
	return nil
}
