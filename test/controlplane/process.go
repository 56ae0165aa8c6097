// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end after SIGTERM before it is
// killed.
const stopGrace = 10 * time.Second

// Command describes a process to run beside the control plane.
type Command struct {
	// Name names the process and its log file.
	Name string
	// Path is the program; Args do not repeat it.
	Path string
	Args []string
	// Env is the whole environment; nil means this process's own.
	Env []string
	// Dir is the working folder; empty means this process's own.
	Dir string
	// Ready returns nil once the process is at work. It is asked every 50 ms
	// with a context that ends with the start. nil: at work once started.
	Ready func(context.Context) error
}

// Process is a running child. Its methods are safe for concurrent use.
//
// A child is killed by the kernel when its owner dies (Linux), however that
// happens. The kernel ties this to the thread that started the child, so one
// goroutine keeps that thread for as long as the child lives.
type Process struct {
	// Name is the Command's; LogFile holds all that the process writes.
	Name, LogFile string
	process       *os.Process
	exited        chan struct{}
	err           error // set before exited is closed
}

// ExitedError says that a process ended without being told to.
type ExitedError struct {
	Name, LogFile string
	// Err is nil for exit code 0, else as os/exec gives it.
	Err error
}

func (e *ExitedError) Error() string {
	return fmt.Sprintf("%s ended (%v); the end of its log %s says why", e.Name, e.Err, e.LogFile)
}

func (e *ExitedError) Unwrap() error { return e.Err }

func startProcess(logDir string, c Command) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(logDir, c.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &Process{Name: c.Name, LogFile: log.Name(), exited: make(chan struct{})}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Env, c.Dir, log, log
	cmd.SysProcAttr = processAttributes()
	started := make(chan error, 1)
	go func() {
		defer log.Close()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.process = cmd.Process
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// PID is the process id, also of its process group.
func (p *Process) PID() int { return p.process.Pid }

// Exited is closed when the process has ended and was reaped.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait returns when the process has ended: nil for exit code 0, else an *ExitedError;
// or with ctx's error when that ends first.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return fmt.Errorf("%s runs still (log: %s): %w", p.Name, p.LogFile, ctx.Err())
	}
	if p.err != nil {
		return &ExitedError{Name: p.Name, LogFile: p.LogFile, Err: p.err}
	}
	return nil
}

// Signal sends a signal to the process alone. It fails with
// os.ErrProcessDone when the process has ended.
func (p *Process) Signal(s syscall.Signal) error { return p.process.Signal(s) }

// Kill ends the process and its children at once and waits until it is gone.
func (p *Process) Kill() {
	select {
	case <-p.exited:
		return
	default:
	}
	// It fails only when the group is gone, which is what is wanted.
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	<-p.exited
}

// Stop asks the process to end, and kills it when it has not within ten
// seconds or by the end of ctx. It is gone when Stop returns.
func (p *Process) Stop(ctx context.Context) {
	if p.Signal(syscall.SIGTERM) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
	p.Kill()
}

// await asks ready until it says nil, the process ends (*ExitedError) or ctx
// does.
func (p *Process) await(ctx context.Context, ready func(context.Context) error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return &ExitedError{Name: p.Name, LogFile: p.LogFile, Err: p.err}
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (log: %s): %w", p.Name, p.LogFile, errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}
