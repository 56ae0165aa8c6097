// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gitserver serves bare repositories over smart HTTP with git's own
// http-backend, on the loopback interface, and over SSH with OpenSSH's sshd. Tests
// start it with New, programs with Start. Received objects are always checked (receive.fsckObjects), and no
// git command it runs sees the configuration of the machine or asks a question.
package gitserver

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Config of a Server. The zero value but for Dir serves everyone.
type Config struct {
	// Dir holds the repositories, and the home directory of git. It must exist.
	Dir string
	// Addr to listen on; default 127.0.0.1:0.
	Addr string
	// Username and Password, when Password is set, are required of every request.
	Username, Password string
	// BearerToken, when set, is accepted as well.
	BearerToken string
	// TLS makes it an https server.
	TLS *tls.Config
	// Wrap, when set, stands between the clients and git: it can watch, and give odd
	// answers.
	Wrap func(http.Handler) http.Handler
}

// Request is one that was served.
type Request struct {
	Method string
	// Path with the query.
	Path string
	// Status of the answer.
	Status int
}

// Server serves repositories. Safe for concurrent use.
type Server struct {
	config  Config
	git     string // path of the git command
	backend string // path of git-http-backend
	addr    string

	mu       sync.Mutex // protects the fields below
	running  *http.Server
	served   chan struct{}
	requests []Request
	password string
}

// Start serves until ctx ends or Close is called.
func Start(ctx context.Context, c Config) (*Server, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	c.Dir = dir
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	s := &Server{config: c, addr: c.Addr, password: c.Password}
	if s.git, err = exec.LookPath("git"); err != nil {
		return nil, fmt.Errorf("the git command is needed to serve repositories: %w", err)
	}
	if err := os.MkdirAll(s.home(), 0o755); err != nil {
		return nil, err
	}
	libexec, err := s.run(ctx, c.Dir, nil, "--exec-path")
	if err != nil {
		return nil, err
	}
	s.backend = filepath.Join(libexec, "git-http-backend")
	if _, err := os.Stat(s.backend); err != nil {
		return nil, fmt.Errorf("this git has no http-backend: %w", err)
	}
	if err := s.Up(ctx); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return s, nil
}

func (s *Server) home() string { return filepath.Join(s.config.Dir, ".home") }

// env is all that git commands see of their surroundings.
func (s *Server) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + s.home(),
		"XDG_CONFIG_HOME=" + s.home(),
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=true",
		"LC_ALL=C",
		"TZ=UTC",
	}
}

// URL of the server, without credentials.
func (s *Server) URL() string {
	scheme := "http"
	if s.config.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + s.addr
}

// Up listens again, on the address that it had before. It does nothing when the
// server is up.
func (s *Server) Up(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	s.addr = l.Addr().String()
	if s.config.TLS != nil {
		l = tls.NewListener(l, s.config.TLS)
	}
	handler := http.Handler(http.HandlerFunc(s.serve))
	if s.config.Wrap != nil {
		handler = s.config.Wrap(handler)
	}
	running := &http.Server{
		Handler:           s.recorded(handler),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(discard{}, "", 0),
	}
	served := make(chan struct{})
	s.running, s.served = running, served
	go func() {
		defer close(served)
		_ = running.Serve(l)
	}()
	return nil
}

// discard: broken connections are the subject of tests, not news.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// Down stops listening and breaks every connection, as a dead host does.
func (s *Server) Down() error {
	s.mu.Lock()
	running, served := s.running, s.served
	s.running = nil
	s.mu.Unlock()
	if running == nil {
		return nil
	}
	err := running.Close()
	<-served
	return err
}

// Close ends the server. The repositories stay.
func (s *Server) Close() error { return s.Down() }

// SetPassword changes what is required from now on.
func (s *Server) SetPassword(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.password = password
}

// Requests returns those served since the last call.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = nil
	return r
}

func (s *Server) recorded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &statusRecorder{ResponseWriter: w}
		// Also for a handler that breaks the connection by a panic.
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.requests = append(s.requests, Request{r.Method, r.URL.RequestURI(), rec.status})
		}()
		next.ServeHTTP(rec, r)
	})
}

type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *statusRecorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	user, ok := s.authenticate(r)
	if !ok {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "authentication required", http.StatusUnauthorized)
		return
	}
	env := append(s.env(), "GIT_PROJECT_ROOT="+s.config.Dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER="+user)
	(&cgi.Handler{Path: s.backend, Dir: s.config.Dir, Env: env, Stderr: discard{}, Logger: log.New(discard{}, "", 0)}).ServeHTTP(w, r)
}

func (s *Server) authenticate(r *http.Request) (user string, ok bool) {
	s.mu.Lock()
	password := s.password
	s.mu.Unlock()
	same := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	if password == "" && s.config.BearerToken == "" {
		return "anonymous", true
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && s.config.BearerToken != "" {
		return "bearer", same(token, s.config.BearerToken)
	}
	u, p, ok := r.BasicAuth()
	return u, ok && password != "" && u != "" && (s.config.Username == "" || same(u, s.config.Username)) && same(p, password)
}

// run runs git and returns what it prints, without the last line break.
func (s *Server) run(ctx context.Context, dir string, stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.git, args...) // #nosec G204 -- git, with arguments of the test
	cmd.Dir = dir
	cmd.Env = s.env()
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), errors.Join(err, ctx.Err()), strings.TrimSpace(errs.String()+out.String()))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
