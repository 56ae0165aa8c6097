// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
	"time"

	"github.com/kommit-dev/kommit/pkg/failpoint"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/stack"
)

const (
	// leastUptime and mostUptime of a server that is killed at a random instant,
	// counted from when it is ready.
	leastUptime, mostUptime = 300 * time.Millisecond, 4 * time.Second
	// failpointTimeout is how long a server may take to get to an instant at which it
	// is to kill itself.
	failpointTimeout = 20 * time.Second
	// startTimeout bounds one start of the server.
	startTimeout = time.Minute
)

// killer ends kommit-apiserver again and again, and starts it at once. It is used by
// one goroutine.
type killer struct {
	stack  *stack.Stack
	random *rand.Rand
	// kills, and those by failpoint or instant.
	kills int
	by    map[string]int
	// started, when set, is told of each server that is ready.
	started func(pid int) error
}

func newKiller(s *stack.Stack, random *rand.Rand) *killer {
	return &killer{stack: s, random: random, by: map[string]int{}}
}

// Instants of death that are not failpoints.
const (
	whileRunning  = "running"
	whileStarting = "starting"
)

// plan the deaths of a number of servers: each of the instants that are asked for, in
// random order among random ones.
func (k *killer) plan(kills int, failpoints []string) []string {
	plan := append([]string{}, failpoints...)
	for len(plan) < kills {
		if k.random.IntN(5) == 0 {
			plan = append(plan, whileStarting)
		} else {
			plan = append(plan, whileRunning)
		}
	}
	k.random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	return plan
}

// run lets the servers die as planned. One is running at the beginning, which dies
// first; one is running at the end.
func (k *killer) run(ctx context.Context, plan []string) error {
	if len(plan) == 0 {
		return nil
	}
	// The running server can only die the first of the usual deaths.
	first := whileRunning
	for i, instant := range plan {
		if instant == whileRunning {
			plan = append(append([]string{}, plan[:i]...), plan[i+1:]...)
			break
		}
	}
	if err := k.live(ctx, first); err != nil {
		return err
	}
	for _, instant := range plan {
		if err := k.one(ctx, instant); err != nil {
			return fmt.Errorf("kill %d (%s): %w", k.kills+1, instant, err)
		}
	}
	return k.start(ctx)
}

// one server from its start to its death.
func (k *killer) one(ctx context.Context, instant string) error {
	switch instant {
	case whileStarting:
		starting, cancel := context.WithTimeout(ctx, between(k.random, 50*time.Millisecond, time.Second))
		defer cancel()
		err := k.stack.StartServer(starting)
		switch {
		case err == nil: // quicker than that
			return k.kill(whileRunning)
		case starting.Err() == nil || ctx.Err() != nil:
			return err
		}
		k.count(whileStarting)
		return nil
	case whileRunning:
		if err := k.start(ctx); err != nil {
			return err
		}
		return k.live(ctx, instant)
	default:
		return k.atFailpoint(ctx, instant)
	}
}

// start one that lives.
func (k *killer) start(ctx context.Context, environment ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := k.stack.StartServer(ctx, environment...); err != nil {
		return err
	}
	if k.started == nil {
		return nil
	}
	return k.started(k.stack.ControlPlane.Process(stack.ServerProcess).PID())
}

// live for a random while, then die.
func (k *killer) live(ctx context.Context, instant string) error {
	living, cancel := context.WithTimeout(ctx, between(k.random, leastUptime, mostUptime))
	defer cancel()
	if err := k.stack.ControlPlane.Wait(living); living.Err() == nil || ctx.Err() != nil {
		return fmt.Errorf("it did not live until it was killed: %w", err)
	}
	return k.kill(instant)
}

func (k *killer) kill(instant string) error {
	k.count(instant)
	return k.stack.ControlPlane.KillProcess(k.stack.ControlPlane.Process(stack.ServerProcess))
}

func (k *killer) count(instant string) {
	k.kills++
	k.by[instant]++
}

// atFailpoint starts a server that kills itself there, at a random one of the times
// that it gets there. One that does not is killed all the same, and is an error: the
// proof would lack that instant.
func (k *killer) atFailpoint(ctx context.Context, name string) error {
	times := map[string]int{failpoint.PushBefore: 3, failpoint.PushAfter: 3}
	most, rare := times[name]
	if !rare {
		most = 12
	}
	bounded, cancel := context.WithTimeout(ctx, failpointTimeout)
	defer cancel()
	err := k.start(bounded, fmt.Sprintf("%s=%s:%d", failpoint.Variable, name, 1+k.random.IntN(most)))
	if err == nil {
		err = k.stack.ControlPlane.Wait(bounded)
	}
	var exited *controlplane.ExitedError
	if errors.As(err, &exited) && exited.Name == stack.ServerProcess && killed(exited) {
		k.count(name)
		// Nobody has stopped it, so it counts as running still.
		if p := k.stack.ControlPlane.Process(stack.ServerProcess); p != nil {
			return k.stack.ControlPlane.KillProcess(p)
		}
		return nil
	}
	return fmt.Errorf("it did not kill itself there: %w", err)
}

func killed(e *controlplane.ExitedError) bool {
	var exit *exec.ExitError
	if !errors.As(e.Err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
