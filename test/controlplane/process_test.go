// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes this test program play one of the roles below instead of
// running tests: processes are tested with real ones.
const (
	roleVariable  = "KOMMIT_TEST_ROLE"
	aliveVariable = "KOMMIT_TEST_ALIVE"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "child":
		child()
	case "owner":
		owner()
	case "failing":
		os.Exit(3)
	}
}

// child holds the pipe of aliveVariable open for as long as it lives.
func child() {
	f, err := os.OpenFile(os.Getenv(aliveVariable), os.O_WRONLY, 0)
	if err != nil {
		os.Exit(1)
	}
	if _, err := f.WriteString("alive\n"); err != nil {
		os.Exit(1)
	}
	select {} // until a signal
}

// owner owns a state folder with one child, and lives until a signal.
func owner() {
	cp, err := New(Config{Dir: os.Args[1], BinDir: os.Args[1]})
	if err == nil {
		_, err = cp.Run(context.Background(), self("child"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func self(role string) Command {
	return Command{Name: role, Path: os.Args[0], Env: append(os.Environ(), roleVariable+"="+role)}
}

// alivePipe returns a pipe that reads "alive" when a child is at work, and ends
// when none is left. Children find it by the environment.
func alivePipe(t *testing.T) io.Reader {
	t.Helper()
	path := filepath.Join(t.TempDir(), "alive")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(aliveVariable, path)
	// Opened for reading and writing it does not wait for the other side; the
	// side for writing is closed once the child has its own.
	both, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return &pipe{r: r, both: both}
}

type pipe struct{ r, both *os.File }

func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.both.Close() // the first byte came from the child, or this is the end
	return n, err
}

func readAlive(t *testing.T, r io.Reader) {
	t.Helper()
	b := make([]byte, len("alive\n"))
	if _, err := io.ReadFull(r, b); err != nil || string(b) != "alive\n" {
		t.Fatalf("the child says %q, %v", b, err)
	}
}

func readEnd(t *testing.T, r io.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Fatalf("after the child's end: %q, %v", rest, err)
	}
}

func startOwner(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), roleVariable+"=owner")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestNoProcessOutlivesAKilledOwner(t *testing.T) {
	alive := alivePipe(t)
	cmd := startOwner(t, t.TempDir())
	readAlive(t, alive)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as asked for
	readEnd(t, alive)
}

func TestDownStopsOwnerAndChildrenFromOutside(t *testing.T) {
	dir := t.TempDir()
	alive := alivePipe(t)
	cmd := startOwner(t, dir)
	readAlive(t, alive)
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	if err := Down(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	readEnd(t, alive)
	if err := <-waited; err == nil {
		t.Error("the owner ended by itself, not by a signal")
	}
	r, err := readRecord(dir)
	if err != nil || len(r.Processes) > 0 || r.Owner.PID != 0 {
		t.Errorf("record after Down: %+v, %v", r, err)
	}
	if err := Down(t.Context(), dir); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestDownLeavesStrangersWithARecordedPIDAlone(t *testing.T) {
	dir := t.TempDir()
	alive := alivePipe(t)
	p, err := startProcess(dir, self("child"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	readAlive(t, alive)
	stale := recorded("child", p.PID())
	stale.Started = "0"
	if err := (record{Processes: []recordedProcess{stale}}).write(dir); err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(0); err != nil {
		t.Errorf("the stranger was stopped: %v", err)
	}
}

func TestDownOfAMissingFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "never")
	if err := Down(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("Down made the folder")
	}
}

func TestRunReportsAProcessThatEndsBeforeItIsReady(t *testing.T) {
	cp, err := New(Config{Dir: t.TempDir(), BinDir: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cp.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	c := self("failing")
	c.Ready = func(context.Context) error { return errors.New("not yet") }
	_, err = cp.Run(t.Context(), c)
	var exited *ExitedError
	var code *exec.ExitError
	if !errors.As(err, &exited) || exited.Name != "failing" || !errors.As(err, &code) || code.ExitCode() != 3 {
		t.Errorf("Run = %v, want an *ExitedError with exit code 3", err)
	}
	if cp.Process("failing") != nil {
		t.Error("it still counts as running")
	}
}

func TestPortsAreReservedAndComeBack(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port, err := reservePort(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was given out twice", port)
		}
		seen[port] = true
		if listening(t.Context(), port) {
			t.Errorf("port %d is reserved, but its owner cannot listen", port)
		}
		if again, err := reservePort(t.Context(), port); err != nil || again != port {
			t.Errorf("asked for %d again: %d, %v", port, again, err)
		}
	}
}

func TestCertificatesAreKeptUntilTheySaySomethingElse(t *testing.T) {
	k, err := newPKI(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	user := func(groups ...string) certificate {
		t.Helper()
		c, err := k.user("system:alice", groups)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := user("b", "a")
	if got := first.cert.Subject.String(); !strings.Contains(got, "CN=system:alice") {
		t.Errorf("subject %s", got)
	}
	for _, same := range []certificate{user("a", "b", "a"), user()} {
		if string(same.CertPEM) != string(first.CertPEM) {
			t.Error("the same user and groups get another certificate")
		}
	}
	if other := user("c"); string(other.CertPEM) == string(first.CertPEM) {
		t.Error("other groups get the same certificate")
	}
	reloaded, err := newPKI(k.dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if string(reloaded.ca.CertPEM) != string(k.ca.CertPEM) || string(reloaded.apiServer.CertPEM) != string(k.apiServer.CertPEM) {
		t.Error("a second start makes new certificates")
	}
	later, err := newPKI(k.dir, time.Now().Add(certificateLifetime))
	if err != nil {
		t.Fatal(err)
	}
	if string(later.apiServer.CertPEM) == string(k.apiServer.CertPEM) {
		t.Error("an expiring certificate is used again")
	}
}
