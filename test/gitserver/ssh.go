// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/kommit-dev/kommit/test/gitserver/sshd"
)

// SSHConfig of an SSHServer.
type SSHConfig struct {
	// Authorized are the keys that may log in, as in authorized_keys.
	Authorized []ssh.PublicKey
	// HostKeyTypes that the server has: ed25519, ecdsa, rsa. Default ed25519, which
	// is quick to make.
	HostKeyTypes []string
	// Authority, when set, certifies the host keys for the host CertifiedFor, which
	// is the server's own when it is empty.
	Authority    ssh.Signer
	CertifiedFor string
	// Log is told when sshd has to be fetched first. Default os.Stderr.
	Log io.Writer
}

// SSHServer serves the repositories of a Server over OpenSSH's sshd. One sshd runs
// for each connection, as under inetd; whoever logs in can run git's services and
// nothing else (git shell). Safe for concurrent use.
type SSHServer struct {
	server  *Server
	program sshd.Program
	login   login
	dir     string
	keys    []ssh.PublicKey
	addr    string

	mu       sync.Mutex // protects the fields below
	listener net.Listener
	running  map[*exec.Cmd]struct{}
	wg       sync.WaitGroup
}

// StartSSH serves until ctx ends or Close is called.
func (s *Server) StartSSH(ctx context.Context, c SSHConfig) (*SSHServer, error) {
	if c.Log == nil {
		c.Log = os.Stderr
	}
	if len(c.HostKeyTypes) == 0 {
		c.HostKeyTypes = []string{"ed25519"}
	}
	program, err := sshd.Ensure(ctx, c.Log)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.config.Dir, ".ssh-")
	if err != nil {
		return nil, err
	}
	h := &SSHServer{server: s, program: program, dir: dir, addr: "127.0.0.1:0", running: map[*exec.Cmd]struct{}{}}
	if h.login, err = newLogin(ctx, dir, c.Log); err != nil {
		return nil, err
	}
	if err := h.Up(ctx); err != nil {
		return nil, err
	}
	if err := h.configure(c); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	context.AfterFunc(ctx, func() { _ = h.Close() })
	return h, nil
}

// configure writes what sshd reads. It is the same for each connection.
func (h *SSHServer) configure(c SSHConfig) error {
	lines := []string{
		"AuthorizedKeysFile " + h.file("authorized_keys"),
		"ForceCommand " + h.file("command"),
		"AuthenticationMethods publickey",
		"PermitRootLogin yes", // whoever runs the tests logs in
		"StrictModes no",      // the keys are in a directory for temporary files
		"UsePAM no",
		"UseDNS no",
		"DisableForwarding yes",
		"PidFile none",
		"LogLevel VERBOSE",
	}
	for _, keyType := range c.HostKeyTypes {
		signer, pem, err := NewKey(keyType, "")
		if err != nil {
			return err
		}
		file := h.file("host_" + keyType)
		if err := os.WriteFile(file, pem, 0o600); err != nil {
			return err
		}
		lines = append(lines, "HostKey "+file)
		h.keys = append(h.keys, signer.PublicKey())
		if c.Authority == nil {
			continue
		}
		host := c.CertifiedFor
		if host == "" {
			if host, _, err = net.SplitHostPort(h.addr); err != nil {
				return err
			}
		}
		cert, err := certify(c.Authority, signer.PublicKey(), host)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file+"-cert.pub", ssh.MarshalAuthorizedKey(cert), 0o600); err != nil {
			return err
		}
		lines = append(lines, "HostCertificate "+file+"-cert.pub")
	}
	var authorized []byte
	for _, k := range c.Authorized {
		authorized = append(authorized, ssh.MarshalAuthorizedKey(k)...)
	}
	return errors.Join(
		os.WriteFile(h.file("sshd_config"), []byte(strings.Join(lines, "\n")+"\n"), 0o600),
		os.WriteFile(h.file("authorized_keys"), authorized, 0o600),
		h.SetCommand(fmt.Sprintf("exec %s shell -c \"$SSH_ORIGINAL_COMMAND\"", shellQuote(h.server.git))),
	)
}

// SetCommand changes what runs for whoever logs in, for the odd answers of other
// hosts; the command that was asked for is in SSH_ORIGINAL_COMMAND.
func (h *SSHServer) SetCommand(script string) error {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	for _, variable := range append(h.server.env(), "GIT_TRACE_PACKET="+h.file("packets")) {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(&b, "export %s=%s\n", name, shellQuote(value))
	}
	fmt.Fprintf(&b, "printf '%%s\\n' \"$SSH_ORIGINAL_COMMAND\" >>%s\n", shellQuote(h.file("commands")))
	fmt.Fprintf(&b, "cd %s || exit\n%s\n", shellQuote(h.server.config.Dir), script)
	return os.WriteFile(h.file("command"), []byte(b.String()), 0o700) // #nosec G306 -- a script is executable
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (h *SSHServer) file(name string) string { return filepath.Join(h.dir, name) }

// Addr is the host and port that it listens on.
func (h *SSHServer) Addr() string { return h.addr }

// URL of a repository of the server.
func (h *SSHServer) URL(name string) string {
	return (&url.URL{Scheme: "ssh", User: url.User(h.login.user), Host: h.addr, Path: filepath.Join(h.server.config.Dir, name)}).String()
}

// HostKeys are the server's, in the order of SSHConfig.HostKeyTypes.
func (h *SSHServer) HostKeys() []ssh.PublicKey { return h.keys }

// KnownHosts is the known_hosts file of a client that knows these keys of the
// server; without any, all.
func (h *SSHServer) KnownHosts(keys ...ssh.PublicKey) []byte {
	if len(keys) == 0 {
		keys = h.keys
	}
	var b []byte
	for _, k := range keys {
		b = append(b, knownhosts.Line([]string{h.addr}, k)+"\n"...)
	}
	return b
}

// Commands are those that were sent so far.
func (h *SSHServer) Commands() ([]string, error) {
	out, err := h.read("commands")
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n"), err
}

var updateCommand = regexp.MustCompile(`(?m)receive-pack< [0-9a-f]{40} [0-9a-f]{40} `)

// Pushes counts the updates of refs that were asked for so far.
func (h *SSHServer) Pushes() (int, error) {
	out, err := h.read("packets")
	return len(updateCommand.FindAllString(out, -1)), err
}

// Log is what sshd logged so far.
func (h *SSHServer) Log() (string, error) { return h.read("log") }

func (h *SSHServer) read(name string) (string, error) {
	b, err := os.ReadFile(h.file(name)) // #nosec G304 -- a file that this server writes
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return string(b), err
}

// Up listens again, on the address that it had before. It does nothing when the
// server is up.
func (h *SSHServer) Up(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listener != nil {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.addr)
	if err != nil {
		return err
	}
	h.addr, h.listener = l.Addr().String(), l
	h.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.serve(conn)
		}
	})
	return nil
}

// serve hands the connection to an sshd.
func (h *SSHServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	socket, err := tcp.File()
	if err != nil {
		return
	}
	defer func() { _ = socket.Close() }()
	log, err := os.OpenFile(h.file("log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer func() { _ = log.Close() }()
	cmd := h.login.command(h.program, "-i", "-e", "-f", h.file("sshd_config"))
	cmd.Dir = h.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = socket, socket, log
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listener == nil {
		return
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(log, "%s: %v\n", h.program.Path, err)
		return
	}
	h.running[cmd] = struct{}{}
	h.wg.Go(func() {
		_ = cmd.Wait() // how a connection ends is the client's business
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.running, cmd)
	})
}

// Down stops listening and breaks every connection, as a dead host does.
func (h *SSHServer) Down() error {
	h.mu.Lock()
	l := h.listener
	h.listener = nil
	for cmd := range h.running {
		_ = cmd.Process.Kill()
	}
	h.mu.Unlock()
	if l == nil {
		return nil
	}
	err := l.Close()
	h.wg.Wait()
	return err
}

// Close ends the server. The repositories stay.
func (h *SSHServer) Close() error { return h.Down() }
