// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	recordFile = "control-plane.json"
	lockFile   = "lock"
)

// record is what a state folder remembers: ports are used again by the next
// start, so that kubeconfigs stay true; processes can be stopped by Down.
type record struct {
	// Owner is the process that started the others.
	Owner     recordedProcess   `json:"owner"`
	Ports     map[string]int    `json:"ports"`
	Processes []recordedProcess `json:"processes"`
}

type recordedProcess struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Started tells this process from a later one with the same pid.
	Started string `json:"started"`
}

func recorded(name string, pid int) recordedProcess {
	return recordedProcess{Name: name, PID: pid, Started: startTime(pid)}
}

func (p recordedProcess) alive() bool {
	return p.PID > 0 && p.Started != "" && startTime(p.PID) == p.Started
}

func readRecord(dir string) (record, error) {
	r := record{Ports: map[string]int{}}
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s in %s is damaged (%w): remove it and stop the processes of that folder by hand", recordFile, dir, err)
	}
	if r.Ports == nil {
		r.Ports = map[string]int{}
	}
	return r, nil
}

func (r record) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordFile)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// InUseError says that another process runs a control plane in this folder.
type InUseError struct{ Dir string }

func (e *InUseError) Error() string {
	return "a control plane already runs in " + e.Dir + ": stop it first, or use another folder"
}

// lock makes this process the only owner of the folder until it dies or
// closes the file.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &InUseError{Dir: dir}
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// Down stops whatever the record in dir says is running there: first the
// process that owns the control plane (unless that is this one), so that it
// can end things in its own order, then what is left. Processes that took over
// a recorded pid are left alone. The data stays. A folder without a record is
// already down.
func Down(ctx context.Context, dir string) error {
	r, err := readRecord(dir)
	if err != nil {
		return err
	}
	if r.Owner.PID != os.Getpid() {
		// An owner that is still at work after three times the grace of one
		// process is not listening.
		r.Owner.stop(ctx, 3*stopGrace)
	}
	for _, p := range slices.Backward(r.Processes) {
		p.stop(ctx, stopGrace)
	}
	r.Owner, r.Processes = recordedProcess{}, nil
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return r.write(dir)
}

// stop ends a process that is not our child, so there is nothing to wait on
// but its absence.
func (p recordedProcess) stop(ctx context.Context, grace time.Duration) {
	if !p.alive() {
		return
	}
	_ = syscall.Kill(p.PID, syscall.SIGTERM)
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for p.alive() {
		select {
		case <-ticker.C:
			continue
		case <-ctx.Done():
		case <-deadline.C:
		}
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
		for p.alive() {
			<-ticker.C // SIGKILL cannot be refused
		}
		return
	}
}
