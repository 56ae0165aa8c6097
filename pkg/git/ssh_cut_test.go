// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// wire stands between us and sshd, and can be cut.
type wire struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex // protects the fields below
	open   []*wireConn
	closed bool // new connections are cut at once
}

type wireConn struct {
	net.Conn
	server net.Conn
	mu     sync.Mutex
	deaf   bool // what the server says does not arrive
}

// Write is how the server's words arrive.
func (c *wireConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deaf {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// wired puts a wire before the fixture's sshd.
func wired(t *testing.T) (*fixture, *wire) {
	t.Helper()
	f := setupSSH(t, gitserver.SSHConfig{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, target: f.ssh.Addr()}
	w.wg.Go(w.serve)
	t.Cleanup(func() {
		_ = l.Close()
		w.cut(true)
		w.wg.Wait()
	})
	u, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = l.Addr().String()
	f.URL = u.String()
	f.secret["known_hosts"] = []byte(knownhosts.Line([]string{u.Host}, f.ssh.HostKeys()[0]))
	f.repo = f.open(t, nil)
	return f, w
}

func (w *wire) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		w.mu.Lock()
		if err != nil || w.closed {
			w.mu.Unlock()
			_ = client.Close()
			continue
		}
		c := &wireConn{Conn: client, server: server}
		w.open = append(w.open, c)
		w.mu.Unlock()
		w.wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		w.wg.Go(func() { _, _ = io.Copy(c, server); _ = client.Close() })
	}
}

// cut breaks every connection, and with closed those to come.
func (w *wire) cut(closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		_ = c.Close()
		_ = c.server.Close()
	}
	w.open, w.closed = nil, closed
}

// deafen keeps back what the server says on the present connections.
func (w *wire) deafen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		c.mu.Lock()
		c.deaf = true
		c.mu.Unlock()
	}
}

// mend lets new connections through.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = false
}

// signalled installs a hook that tells when it runs; the channel is closed then.
func (f *fixture) signalled(t *testing.T, hook, then string) <-chan struct{} {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f.MustHook(hook, "echo >'"+fifo+"'\n"+then)
	runs := make(chan struct{})
	go func() {
		defer close(runs)
		if r, err := os.Open(fifo); err == nil {
			_, _ = io.Copy(io.Discard, r)
			_ = r.Close()
		}
	}()
	return runs
}

// pushRecorded pushes one file, does something once the commit is recorded and
// about to be sent, and returns its hash and the error.
func (f *fixture) pushRecorded(t *testing.T, before func()) (hash string, err error) {
	t.Helper()
	_, err = f.repo.Push(t.Context(), "main", []git.Commit{commit("a", "1\n")}, func(b []git.Built) error {
		hash = b[0].Hash
		before()
		return nil
	})
	return hash, err
}

func TestG4SSHCutAfterThePushLanded(t *testing.T) {
	f, w := wired(t)
	f.MustCommit("main", map[string]string{"README": "1\n"})
	landed := f.signalled(t, "post-receive", "")
	var wg sync.WaitGroup
	wg.Go(func() {
		<-landed
		w.cut(false)
	})
	hash, err := f.pushRecorded(t, w.deafen)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "head", f.MustHead("main"), hash)
	wantEqual(t, "pushes", f.posts(t), 1)
}

func TestG4SSHCutBeforeThePush(t *testing.T) {
	f, w := wired(t)
	head := f.MustCommit("main", map[string]string{"README": "1\n"})
	recorded, err := f.pushRecorded(t, func() { w.cut(false) })
	wantError[*git.UnreachableError](t, err)
	wantEqual(t, "head", f.MustHead("main"), head)
	c := commit("a", "1\n")
	c.Recorded = hashesOf(recorded)
	wantEqual(t, "hash", f.pushOne(t, "main", c).Hash, recorded)
}

func TestD2SSHUnsettledPushThatLanded(t *testing.T) {
	f, w := wired(t)
	f.MustCommit("main", map[string]string{"README": "1\n"})
	landed := f.signalled(t, "post-receive", "")
	var wg sync.WaitGroup
	wg.Go(func() {
		<-landed
		w.cut(true)
	})
	recorded, err := f.pushRecorded(t, w.deafen)
	wg.Wait()
	wantError[*git.UnreachableError](t, err)
	wantEqual(t, "head", f.MustHead("main"), recorded)
	w.mend()
	f.MustHook("post-receive", "")
	c := commit("a", "1\n")
	c.Recorded = hashesOf(recorded)
	wantEqual(t, "hash", f.pushOne(t, "main", c).Hash, recorded)
	wantEqual(t, "commits", f.count(t, "main"), 2)
}

func TestG9SSHContextEndsThePush(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	head := f.MustCommit("main", map[string]string{"README": "1\n"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hold := filepath.Join(t.TempDir(), "hold")
	if err := syscall.Mkfifo(hold, 0o600); err != nil {
		t.Fatal(err)
	}
	runs := f.signalled(t, "pre-receive", "cat '"+hold+"' >/dev/null; exit 1")
	var wg sync.WaitGroup
	wg.Go(func() {
		<-runs
		cancel()
	})
	_, err := f.repo.Push(ctx, "main", []git.Commit{commit("a", "1\n")}, nil)
	wg.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	// The hook is let go, and the branch is where it was.
	release, err := os.OpenFile(hold, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.ssh.Down(); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "head", f.MustHead("main"), head)
}

// mute is an SSH server that falls silent in one phase, and tells when it does. It
// stands for a host that hangs, which sshd cannot be made to do.
func mute(t *testing.T, phase string, silent func()) (url string, secret map[string][]byte) {
	t.Helper()
	host, _, err := gitserver.NewKey("ed25519", "")
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := gitserver.NewKey("ed25519", "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	t.Cleanup(func() {
		close(ended)
		_ = l.Close()
		wg.Wait()
	})
	hang := func() {
		silent()
		<-ended
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		if phase == "authentication" {
			hang()
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	wg.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		switch phase {
		case "no version":
			hang()
			return
		case "no keys":
			_, _ = io.WriteString(conn, "SSH-2.0-mute\r\n")
			hang()
			return
		}
		server, channels, requests, err := ssh.NewServerConn(conn, config)
		if err != nil {
			return
		}
		defer func() { _ = server.Close() }()
		wg.Go(func() { ssh.DiscardRequests(requests) })
		for channel := range channels {
			if phase == "channel" {
				hang()
			}
			c, requests, err := channel.Accept()
			if err != nil {
				return
			}
			for r := range requests {
				if phase == "command" {
					hang()
				}
				_ = r.Reply(true, nil)
				if phase == "half a list" {
					_, _ = io.WriteString(c, "00")
				}
				hang()
			}
		}
	})
	addr := l.Addr().String()
	return "ssh://git@" + addr + "/repo.git", map[string][]byte{"identity": key, "known_hosts": []byte(knownhosts.Line([]string{addr}, host.PublicKey()))}
}

func TestG9SSHContextEndsEveryPhase(t *testing.T) { // golang#15113: the handshake went on without it
	for _, phase := range []string{"no version", "no keys", "authentication", "channel", "command", "no list", "half a list"} {
		t.Run(phase, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			url, secret := mute(t, phase, cancel)
			repo, err := git.NewRepository(git.Config{URL: url, Credentials: func(context.Context) (git.Credentials, error) { return git.ParseSecret(secret) }})
			if err != nil {
				t.Fatal(err)
			}
			err = repo.Probe(ctx)
			wantError[*git.UnreachableError](t, err)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want context.Canceled", err)
			}
		})
		t.Run(phase+", timeout", func(t *testing.T) {
			url, secret := mute(t, phase, func() {})
			repo, err := git.NewRepository(git.Config{URL: url, Timeout: 50 * time.Millisecond, Credentials: func(context.Context) (git.Credentials, error) { return git.ParseSecret(secret) }})
			if err != nil {
				t.Fatal(err)
			}
			err = repo.Probe(t.Context())
			wantError[*git.UnreachableError](t, err)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "50ms") {
				t.Errorf("error %v, want context.DeadlineExceeded after 50ms", err)
			}
		})
	}
}

func TestSSHPassword(t *testing.T) { // as in Secrets of Flux; sshd takes passwords of real accounts only
	host, _, err := gitserver.NewKey("ed25519", "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{
		PasswordCallback: func(c ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			if c.User() != "robot" || string(password) != "s3cret" {
				return nil, errors.New("no")
			}
			return nil, nil
		},
		BannerCallback: func(ssh.ConnMetadata) string { return "Welcome to s3cret.example.com\n" },
	}
	config.AddHostKey(host)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				_, channels, requests, err := ssh.NewServerConn(conn, config)
				if err != nil {
					return
				}
				wg.Go(func() { ssh.DiscardRequests(requests) })
				for channel := range channels {
					_ = channel.Reject(ssh.Prohibited, "closed on Sundays")
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	addr := l.Addr().String()
	probe := func(password string) error {
		secret := map[string][]byte{"username": []byte("robot"), "password": []byte(password), "known_hosts": []byte(knownhosts.Line([]string{addr}, host.PublicKey()))}
		repo, err := git.NewRepository(git.Config{URL: "ssh://" + addr + "/repo.git", Credentials: func(context.Context) (git.Credentials, error) { return git.ParseSecret(secret) }})
		if err != nil {
			t.Fatal(err)
		}
		return repo.Probe(t.Context())
	}
	in := wantError[*git.RefusedError](t, probe("s3cret"))
	if !strings.Contains(in.Text, "closed on Sundays") || strings.Contains(in.Text, "s3cret") {
		t.Errorf("text %q", in.Text)
	}
	out := wantError[*git.UnauthorizedError](t, probe("wrong"))
	if !strings.HasPrefix(out.Text, "Welcome to") || strings.Contains(out.Text, "wrong") {
		t.Errorf("text %q", out.Text)
	}
}
