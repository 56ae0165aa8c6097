// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane on 127.0.0.1
// without containers: etcd, kube-apiserver and, if asked for,
// kube-controller-manager, built from their Go modules by the package build.
//
// The end-to-end tests and the demo use it alike. One state folder holds
// everything: certificates, data, kubeconfigs, logs, and a record of the ports
// and processes. A folder serves one owner at a time; starting on a folder
// with data goes on with that data, on the same ports if they are still free.
//
// It runs on Unix. On Linux no process outlives the one that started it, not
// even when that is killed.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kommit-dev/kommit/test/controlplane/build"
)

// Admin is the user of the group system:masters.
const Admin = "admin"

// Names of the control plane's own processes.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
)

// startTimeout bounds the start of one process. It takes 3 s on an idle
// machine; it must not fail a test on a busy one.
const startTimeout = 3 * time.Minute

// Config says what to run and where.
type Config struct {
	// Dir is the state folder. It is made if missing, readable by its owner
	// only. A relative path counts from the working folder. Required.
	Dir string
	// BinDir holds the programs, as EnsureBinaries returns it. Required.
	BinDir string
	// PluginDir, if set, comes first in the PATH of kubectl.
	PluginDir string
	// Audit sends audit events to a webhook. The zero value: no audit.
	Audit Audit
	// APIServerArgs are more flags for kube-apiserver; a flag given here wins
	// over the harness's own.
	APIServerArgs []string
	// WithControllerManager also runs kube-controller-manager: ServiceAccounts,
	// garbage collection, Deployments that get ReplicaSets and pending Pods.
	WithControllerManager bool
}

// Audit configures kube-apiserver's audit webhook.
type Audit struct {
	// WebhookKubeconfig and Policy are files that exist by the time of Start.
	WebhookKubeconfig, Policy string
	// BatchFlags are the --audit-webhook-* flags. nil: RecommendedAuditFlags;
	// empty: kube-apiserver's own defaults (batches of up to 30 s).
	BatchFlags []string
}

// RecommendedAuditFlags are those that kommit recommends to its users: each
// event is sent at once and alone, and no reply waits for the receiver.
func RecommendedAuditFlags() []string {
	return []string{
		"--audit-webhook-mode=batch",
		"--audit-webhook-batch-max-size=1",
		// With one event a batch, the default of ten batches a second starves.
		"--audit-webhook-batch-throttle-enable=false",
	}
}

// EnsureBinaries is build.EnsureBinaries, for those who start one right away.
func EnsureBinaries(ctx context.Context, log io.Writer) (dir string, err error) {
	return build.EnsureBinaries(ctx, log)
}

// ControlPlane is a state folder with its running processes. Its methods are
// safe for concurrent use, Start and Stop excepted: those are the owner's.
type ControlPlane struct {
	config Config
	pki    *pki
	lock   *os.File

	mu        sync.Mutex // guards the fields below and the record on disk
	record    record
	processes []*Process // in the order of their start
	// ended receives the first process that ended by itself.
	ended chan *Process
	stop  chan struct{} // closed by Stop
}

// Start makes and starts a control plane. It is ready when Start returns: the
// API server says so, and the controller manager has made the ServiceAccount
// default/default. On an error nothing is left running. ctx bounds the start
// only; Stop ends it.
func Start(ctx context.Context, c Config) (*ControlPlane, error) {
	cp, err := New(c)
	if err != nil {
		return nil, err
	}
	if err := cp.Start(ctx); err != nil {
		return nil, err
	}
	return cp, nil
}

// New prepares the state folder and its certificates and starts nothing, so
// that PrepareExtension and Kubeconfig can be used before Start. The folder
// belongs to the caller until Stop; another owner gets an *InUseError.
func New(c Config) (*ControlPlane, error) {
	if c.Dir == "" || c.BinDir == "" {
		return nil, errors.New("controlplane.Config needs Dir and BinDir")
	}
	for _, dir := range []*string{&c.Dir, &c.BinDir, &c.PluginDir} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, err
		}
		*dir = abs
	}
	for _, dir := range []string{c.Dir, filepath.Join(c.Dir, "log")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	held, err := lock(c.Dir)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{config: c, lock: held, ended: make(chan *Process, 1), stop: make(chan struct{})}
	if cp.record, err = readRecord(c.Dir); err == nil {
		cp.pki, err = newPKI(filepath.Join(c.Dir, "pki"), time.Now())
	}
	if err != nil {
		held.Close()
		return nil, err
	}
	return cp, nil
}

// Start starts the processes; see the function Start. It is called once. When
// it fails, everything is stopped and the folder is given back.
func (cp *ControlPlane) Start(ctx context.Context) error {
	if err := cp.start(ctx); err != nil {
		return errors.Join(err, cp.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	// Where the kernel does not end the children of a killed owner, its record
	// still names them.
	if err := Down(ctx, cp.config.Dir); err != nil {
		return err
	}
	parts := []func(context.Context) (part, error){cp.etcd, cp.apiServer}
	if cp.config.WithControllerManager {
		parts = append(parts, cp.controllerManager)
	}
	for _, part := range parts {
		if err := cp.startPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// part is one of the control plane's processes and the ports it listens on.
type part struct {
	Command
	ports []string // names in record.Ports
}

// startPart starts one process. Should somebody have taken its port after all,
// it gets another one and another try.
func (cp *ControlPlane) startPart(ctx context.Context, describe func(context.Context) (part, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		p, err := describe(ctx)
		if err != nil {
			return err
		}
		_, err = cp.Run(ctx, p.Command)
		var exited *ExitedError
		if errors.As(err, &exited) && cp.forgetTaken(ctx, p.ports) {
			continue
		}
		return err
	}
}

// forgetTaken drops those ports that a stranger listens on and says if any.
func (cp *ControlPlane) forgetTaken(ctx context.Context, names []string) bool {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	forgotten := false
	for _, name := range names {
		if listening(ctx, cp.record.Ports[name]) {
			delete(cp.record.Ports, name)
			forgotten = true
		}
	}
	return forgotten
}

// port returns the port of that name, reserved: the one of the last start if
// it is free.
func (cp *ControlPlane) port(ctx context.Context, name string) (int, error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	port, err := reservePort(ctx, cp.record.Ports[name])
	if err != nil {
		return 0, err
	}
	cp.record.Ports[name] = port
	return port, cp.record.write(cp.config.Dir)
}

// Run starts another process beside the control plane (the extension server, a
// Git server) under the same rules: its output goes to a file of LogDir, it
// ends with this process, Stop ends it before those that were started earlier,
// and Down knows it. Run returns when c.Ready says so; on an error the process
// is gone (*ExitedError: by itself).
func (cp *ControlPlane) Run(ctx context.Context, c Command) (*Process, error) {
	p, err := startProcess(cp.LogDir(), c)
	if err != nil {
		return nil, err
	}
	if err := cp.remember(p); err != nil {
		p.Kill()
		return nil, err
	}
	if c.Ready != nil {
		if err := p.await(ctx, c.Ready); err != nil {
			p.Kill()
			return nil, errors.Join(err, cp.forget(p))
		}
	}
	go cp.supervise(p)
	return p, nil
}

// StopProcess stops one process, kommit's or the control plane's own. Wait does
// not report it.
func (cp *ControlPlane) StopProcess(ctx context.Context, p *Process) error {
	err := cp.forget(p)
	p.Stop(ctx)
	return err
}

// KillProcess is StopProcess with SIGKILL: the process gets no chance to tidy up.
func (cp *ControlPlane) KillProcess(p *Process) error {
	err := cp.forget(p)
	p.Kill()
	return err
}

// TerminateProcess sends SIGTERM and returns at once: how long the process takes is
// its own affair, and Process.Wait says how it ended. Wait does not report it.
func (cp *ControlPlane) TerminateProcess(p *Process) error {
	return errors.Join(cp.forget(p), p.Signal(syscall.SIGTERM))
}

// RestartAPIServer stops kube-apiserver and starts it again, on the same port and
// data. Watches end, and those that go on from before get 410.
func (cp *ControlPlane) RestartAPIServer(ctx context.Context) error {
	if err := cp.StopProcess(ctx, cp.Process(APIServer)); err != nil {
		return err
	}
	return cp.startPart(ctx, cp.apiServer)
}

// Process returns the running process of that name, nil if there is none.
func (cp *ControlPlane) Process(name string) *Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	i := slices.IndexFunc(cp.processes, func(p *Process) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return cp.processes[i]
}

func (cp *ControlPlane) remember(p *Process) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.processes = append(cp.processes, p)
	return cp.writeProcesses()
}

func (cp *ControlPlane) forget(p *Process) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.processes = slices.DeleteFunc(cp.processes, func(q *Process) bool { return q == p })
	return cp.writeProcesses()
}

func (cp *ControlPlane) writeProcesses() error {
	cp.record.Owner = recordedProcess{}
	if len(cp.processes) > 0 {
		cp.record.Owner = recorded("owner", os.Getpid())
	}
	cp.record.Processes = nil
	for _, p := range cp.processes {
		cp.record.Processes = append(cp.record.Processes, recorded(p.Name, p.PID()))
	}
	return cp.record.write(cp.config.Dir)
}

// supervise tells Wait when a process ends that was not stopped.
func (cp *ControlPlane) supervise(p *Process) {
	<-p.exited
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !slices.Contains(cp.processes, p) {
		return
	}
	select {
	case cp.ended <- p:
	default: // an earlier one is enough to know
	}
}

// Wait returns an *ExitedError when a process ended that nobody stopped, nil
// after Stop, and ctx's error when ctx ends first.
func (cp *ControlPlane) Wait(ctx context.Context) error {
	select {
	case p := <-cp.ended:
		return &ExitedError{Name: p.Name, LogFile: p.LogFile, Err: p.err}
	case <-cp.stop:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop ends all processes, the youngest first, and gives the folder back; the
// data stays in it. Each has ten seconds to end by itself, all of them until
// the end of ctx. No process is left when Stop returns. Further calls do
// nothing.
func (cp *ControlPlane) Stop(ctx context.Context) error {
	cp.mu.Lock()
	select {
	case <-cp.stop:
		cp.mu.Unlock()
		return nil
	default:
		close(cp.stop)
	}
	processes := slices.Clone(cp.processes)
	cp.processes = nil
	cp.mu.Unlock()

	for _, p := range slices.Backward(processes) {
		p.Stop(ctx)
	}

	cp.mu.Lock()
	defer cp.mu.Unlock()
	return errors.Join(cp.writeProcesses(), cp.lock.Close())
}

// Dir is the state folder, absolute.
func (cp *ControlPlane) Dir() string { return cp.config.Dir }

// LogDir is the folder of the processes' log files, <name>.log each.
func (cp *ControlPlane) LogDir() string { return filepath.Join(cp.config.Dir, "log") }

// BinDir is the folder of the programs, kubectl among them, absolute.
func (cp *ControlPlane) BinDir() string { return cp.config.BinDir }

// URL is the API server's. It is known once Start was called.
func (cp *ControlPlane) URL() string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return fmt.Sprintf("https://%s", hostPort(cp.record.Ports[APIServer]))
}
