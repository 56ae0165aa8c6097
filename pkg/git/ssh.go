// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshTransport runs Git's services over SSH, each session on a connection of its
// own. Nothing of the machine is used: no agent, no files of a home directory.
// Without known_hosts, or with a host key that is not in it, there is no session
// (G9).
type sshTransport struct {
	host, port  string
	user        string // of the URL; empty when it names none
	path        string
	timeout     time.Duration
	credentials func(context.Context) (Credentials, error)
	keys        keyring
}

var _ transport = (*sshTransport)(nil)

func newSSHTransport(r remote, c Config) *sshTransport {
	u := url.URL{Host: r.host}
	port := u.Port()
	if port == "" {
		port = "22"
	}
	return &sshTransport{host: u.Hostname(), port: port, user: r.user, path: r.path, timeout: c.Timeout, credentials: c.Credentials}
}

// close has nothing to do: no connection outlives its session.
func (t *sshTransport) close() {}

// open reads the credentials once more when the remote refuses them, and tries
// again if they have changed since.
func (t *sshTransport) open(ctx context.Context, s service, _ bool) (session, error) {
	creds, err := freshCredentials(ctx, t.credentials)
	if err != nil {
		return nil, err
	}
	opened, err := t.connect(ctx, s, creds)
	var unauthorized *UnauthorizedError
	if errors.As(err, &unauthorized) {
		if again, rerr := freshCredentials(ctx, t.credentials); rerr == nil && !again.equal(creds) {
			opened, err = t.connect(ctx, s, again)
		}
	}
	if err != nil {
		return nil, err
	}
	return opened, nil
}

func (t *sshTransport) connect(ctx context.Context, service service, creds Credentials) (*sshSession, error) {
	auth, err := t.authentication(creds.material())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(t.host, t.port))
	if err != nil {
		return nil, t.unreachable(ctx, "connecting", err)
	}
	s := &sshSession{t: t, service: service, creds: creds, conn: conn}
	stop := context.AfterFunc(ctx, s.cut)
	if err = s.handshake(ctx, auth); err == nil {
		err = s.start(ctx)
	}
	if !stop() {
		err = t.unreachable(ctx, "reading the list of refs", ctx.Err())
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// sshAuthentication is how to log in, and whom to trust.
type sshAuthentication struct {
	user   string
	method ssh.AuthMethod
	what   string // what the method offers, without secrets
	hosts  *hostKeys
}

// authentication reads the key first and then the password, as it is in Secrets
// of Flux. The error is a *SecretError.
func (t *sshTransport) authentication(m material) (*sshAuthentication, error) {
	a := &sshAuthentication{user: t.user}
	if a.user == "" {
		a.user = m.username
	}
	if a.user == "" {
		a.user = defaultUsername
	}
	switch {
	case len(m.sshPrivateKey) > 0:
		signer, err := t.keys.unlock(m)
		if err != nil {
			return nil, err
		}
		a.method, a.what = ssh.PublicKeys(signer), "the key "+ssh.FingerprintSHA256(signer.PublicKey())
	case m.password != "":
		a.method, a.what = ssh.Password(m.password), "a password"
	default:
		return nil, &SecretError{Key: "ssh-privatekey", Reason: "must be set for an SSH URL, with known_hosts"}
	}
	if len(m.knownHosts) == 0 {
		return nil, &SecretError{Key: "known_hosts", Reason: fmt.Sprintf("must be set for an SSH URL: the lines that ssh-keyscan -p %s %s prints, compared with what the host publishes", t.port, t.host)}
	}
	hosts, err := parseKnownHosts(m.knownHosts, knownHostsName(t.host, t.port))
	if err != nil {
		return nil, err
	}
	a.hosts = hosts
	return a, nil
}

// unreachable words a failure of the network, and of the context.
func (t *sshTransport) unreachable(ctx context.Context, doing string, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s: %w", t.timeout, ctx.Err())
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return &UnreachableError{Err: fmt.Errorf("%s %s: %w", doing, net.JoinHostPort(t.host, t.port), err)}
}

// sshSession is one command on one connection.
type sshSession struct {
	t       *sshTransport
	service service
	creds   Credentials
	conn    net.Conn
	client  *ssh.Client
	refs    *advertisement

	stdin  io.WriteCloser
	stdout *bufio.Reader
	said   boundedText          // what the server says beside the protocol
	end    func() commandEnding // waits for it

	used    bool
	writing sync.WaitGroup
}

var _ session = (*sshSession)(nil)

// cut ends everything that waits for the remote.
func (s *sshSession) cut() { _ = s.conn.Close() }

func (s *sshSession) handshake(ctx context.Context, auth *sshAuthentication) error {
	var trusted atomic.Bool
	conn, channels, requests, err := ssh.NewClientConn(s.conn, net.JoinHostPort(s.t.host, s.t.port), &ssh.ClientConfig{
		User:          auth.user,
		Auth:          []ssh.AuthMethod{auth.method},
		ClientVersion: "SSH-2.0-kommit",
		HostKeyCallback: func(address string, remote net.Addr, key ssh.PublicKey) error {
			err := auth.hosts.check(address, remote, key)
			trusted.Store(err == nil)
			return err
		},
		HostKeyAlgorithms: auth.hosts.algorithms(),
		BannerCallback: func(message string) error {
			_, _ = s.said.Write([]byte(message))
			return nil
		},
	})
	if err == nil {
		s.client = ssh.NewClient(conn, channels, requests)
		return nil
	}
	var hostKey *HostKeyError
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(err, &hostKey):
		return hostKey
	case errors.As(err, &negotiation):
		return &UnsupportedError{What: "the SSH algorithms of " + s.t.host + ": " + negotiation.Error()}
	case ctx.Err() != nil, !trusted.Load(), broken(err):
		return s.t.unreachable(ctx, "SSH handshake with", err)
	}
	// The host is who it should be, and the connection works: it does not let us in.
	text := fmt.Sprintf("user %s with %s is refused by %s", auth.user, auth.what, s.t.host)
	if said := s.words(); said != "" {
		text = said + "\n" + text
	}
	return &UnauthorizedError{Text: text}
}

// broken says whether an error is about the connection, and not what the remote
// answered on it.
func broken(err error) bool {
	var network net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network)
}

// start runs the service and reads the list of refs.
func (s *sshSession) start(ctx context.Context) error {
	command, err := s.client.NewSession()
	if err == nil {
		s.stdin, err = command.StdinPipe()
	}
	var stdout io.Reader
	if err == nil {
		stdout, err = command.StdoutPipe()
	}
	if err == nil {
		command.Stderr = &s.said
		err = command.Start(string(s.service) + " " + shellQuote(s.t.path))
	}
	switch {
	case err != nil && (broken(err) || ctx.Err() != nil):
		return s.t.unreachable(ctx, "starting "+string(s.service)+" on", err)
	case err != nil:
		return s.refusal(fmt.Sprintf("it does not run %s (%v)", s.service, err))
	}
	s.stdout = bufio.NewReader(stdout)
	s.end = sync.OnceValue(func() commandEnding { return endingOf(command.Wait()) })
	if first, err := s.stdout.Peek(4); err == nil && !isHex(first) {
		// A shell or a forge that answers in plain words, and may wait for ours.
		_ = s.stdin.Close()
		text, _ := io.ReadAll(io.LimitReader(s.stdout, maxText))
		return s.refusal(string(text))
	}
	s.refs, err = parseAdvertisement(s.stdout)
	if err == nil {
		return nil
	}
	var said *remoteError
	var unsupported *UnsupportedError
	switch {
	case errors.As(err, &said):
		return s.refusal(said.text)
	case errors.As(err, &unsupported):
		return unsupported
	case errors.Is(err, errPacket):
		return s.t.unreachable(ctx, "reading the list of refs of", err)
	}
	if end := s.end(); end.byItself {
		return s.refusal(fmt.Sprintf("%s ended with status %d (no such repository, or the credentials may not see it)", s.service, end.status))
	}
	return s.t.unreachable(ctx, "reading the list of refs of", err)
}

// refusal is in the words of the server where it has any, and else in ours.
func (s *sshSession) refusal(text string) error {
	if said := s.words(); said != "" {
		text = said + "\n" + text
	}
	return &RefusedError{Text: cleanText(s.redact(text))}
}

// words are what the server said beside the protocol.
func (s *sshSession) words() string { return cleanText(s.redact(s.said.String())) }

func (s *sshSession) advertised() *advertisement { return s.refs }

func (s *sshSession) redact(text string) string { return s.creds.redact(text) }

// exchange writes while it reads: a server that refuses early does not read to
// the end before it says why, and waits for us to read meanwhile.
func (s *sshSession) exchange(ctx context.Context, request []byte) (io.ReadCloser, error) {
	s.used = true
	ctx, cancel := context.WithTimeout(ctx, s.t.timeout)
	a := &sshAnswer{ctx: ctx, s: s, cancel: cancel, stop: context.AfterFunc(ctx, s.cut)}
	s.writing.Go(func() {
		_, _ = s.stdin.Write(request) // what becomes of it, the answer tells
		_ = s.stdin.Close()
	})
	if _, err := s.stdout.Peek(1); err != nil {
		if end := s.end(); !end.byItself {
			err = s.t.unreachable(ctx, "waiting for the answer of", io.ErrUnexpectedEOF)
			_ = a.Close()
			return nil, err
		}
	}
	return a, nil
}

// close tells the service that nothing follows, if nothing was asked of it: it
// would complain of a connection that breaks.
func (s *sshSession) close() {
	if !s.used && s.refs != nil {
		_ = s.conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = s.stdin.Write(appendFlush(nil))
		_ = s.stdin.Close()
	}
	if s.client != nil {
		_ = s.client.Close()
	}
	s.cut()
	s.writing.Wait()
}

// sshAnswer is the output of the service, up to its end.
type sshAnswer struct {
	ctx    context.Context // of the exchange, for the error of a read
	s      *sshSession
	cancel context.CancelFunc
	stop   func() bool
}

func (a *sshAnswer) Read(b []byte) (int, error) {
	n, err := a.s.stdout.Read(b)
	if n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	// The library gives the same error for a connection that broke.
	switch end := a.s.end(); {
	case !end.byItself && a.ctx.Err() != nil:
		return 0, a.ctx.Err()
	case !end.byItself:
		return 0, io.ErrUnexpectedEOF
	case end.status != 0 && a.s.said.String() != "":
		return 0, &remoteError{a.s.said.String()}
	}
	return 0, io.EOF
}

func (a *sshAnswer) Close() error {
	a.stop()
	a.cancel()
	return nil
}

// commandEnding is how a command ended. byItself: with an exit status, and not
// because the connection broke or a signal killed it.
type commandEnding struct {
	byItself bool
	status   int
}

func endingOf(err error) commandEnding {
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return commandEnding{byItself: true}
	case errors.As(err, &exit) && exit.Signal() == "":
		return commandEnding{byItself: true, status: exit.ExitStatus()}
	}
	return commandEnding{}
}

// shellQuote makes one word of any path for a Bourne shell and for what hosts have
// instead of one. The exclamation mark is csh's.
func shellQuote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(s) + "'"
}

// isHex says whether a packet's length may be meant.
func isHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// boundedText keeps the beginning of what is written to it. Safe for concurrent use.
type boundedText struct {
	mu   sync.Mutex
	text []byte
}

func (t *boundedText) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b[:min(len(b), 2*maxText-len(t.text))]...)
	return len(b), nil
}

func (t *boundedText) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
