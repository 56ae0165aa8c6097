// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/test/stack"
)

// fault is something around kommit-apiserver that is broken for a while.
type fault struct {
	name string
	// quick ones are in the short form too.
	quick bool
	// blind ones take from kommit what it could learn of edits: there it may say that it
	// does not know an author, but not name another.
	blind bool
	apply func(context.Context, *world) error
	lift  func(context.Context, *world) error
}

// faults are those of the proof.
func faults() []fault {
	return []fault{
		{name: "remote down", quick: true, apply: remoteDown, lift: remoteUp},
		{name: "remote slow", apply: remoteSlow, lift: remoteFast},
		{name: "connections cut", apply: cutConnections, lift: keepConnections},
		{name: "remote rejects", apply: reject, lift: accept},
		{name: "kube-apiserver restarted", blind: true, apply: restartAPIServer, lift: restartAPIServer},
		{name: "disk full", apply: fillDisk, lift: freeDisk},
	}
}

// under lets the server be killed a number of times while the fault lasts, and as
// often after it.
func (f fault) under(ctx context.Context, w *world, kills int) error {
	if err := f.apply(ctx, w); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	// Something has to be done in it, even if no kill is wanted.
	wait(ctx, 2*time.Second)
	if err := w.killer.run(ctx, w.killer.plan(kills, nil)); err != nil {
		return err
	}
	if err := f.lift(ctx, w); err != nil {
		return fmt.Errorf("the end of %s: %w", f.name, err)
	}
	return w.killer.run(ctx, w.killer.plan(kills, nil))
}

func remoteDown(_ context.Context, w *world) error { return w.stack.Git.Down() }
func remoteUp(ctx context.Context, w *world) error { return w.stack.Git.Up(ctx) }

func remoteSlow(_ context.Context, w *world) error { w.proxy.setSlow(true); return nil }
func remoteFast(_ context.Context, w *world) error { w.proxy.setSlow(false); return nil }

func cutConnections(_ context.Context, w *world) error {
	w.proxy.setCut(w.source("cuts"))
	return nil
}
func keepConnections(_ context.Context, w *world) error { w.proxy.setCut(nil); return nil }

func reject(_ context.Context, w *world) error {
	return w.stack.Git.Repository(repositoryName).InstallHook("pre-receive", "echo 'not now' >&2\nexit 1\n")
}

// accept pushes again. What was refused is tried again when the provider changes.
func accept(ctx context.Context, w *world) error {
	if err := w.stack.Git.Repository(repositoryName).InstallHook("pre-receive", ""); err != nil {
		return err
	}
	for i, place := range w.places {
		patch := fmt.Appendf(nil, `{"spec":{"timeout":"%ds"}}`, 50+w.killer.kills%5+i)
		if err := until(ctx, startTimeout, func(ctx context.Context) (string, error) {
			_, err := w.kommit.KommitV1alpha1().GitProviders(place.Namespace).Patch(ctx, "git", types.MergePatchType, patch, metav1.PatchOptions{})
			return "", err
		}); err != nil {
			return err
		}
	}
	return nil
}

func restartAPIServer(ctx context.Context, w *world) error { return w.restartAPIServer(ctx) }

// fillDisk lets neither the running server nor the next ones write past the end that
// its storage file has.
func fillDisk(ctx context.Context, w *world) error {
	limit := func(pid int) error {
		info, err := os.Stat(w.stack.StorageFile())
		if err != nil {
			return err
		}
		return limitFiles(ctx, pid, strconv.FormatInt(info.Size(), 10))
	}
	w.killer.started = limit
	return limit(w.stack.ControlPlane.Process(stack.ServerProcess).PID())
}

func freeDisk(ctx context.Context, w *world) error {
	w.killer.started = nil
	return limitFiles(ctx, w.stack.ControlPlane.Process(stack.ServerProcess).PID(), "unlimited")
}

func limitFiles(ctx context.Context, pid int, size string) error {
	out, err := exec.CommandContext(ctx, "prlimit", "--pid="+strconv.Itoa(pid), "--fsize="+size+":unlimited").CombinedOutput()
	if err != nil {
		return fmt.Errorf("prlimit: %w: %s", err, out)
	}
	return nil
}
