// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitserver

import "context"

// TB is what New needs of a test: *testing.T and *testing.B have it. It is named
// here so that a program that starts a server does not link package testing.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
	TempDir() string
}

// New starts a server for one test, in a directory of the test unless Config
// names one, and ends it with the test. At the end every repository made with
// NewRepository is checked by Fsck (G10).
func New(t TB, c Config) *Server {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	// Not the test's own context: that ends before the clean-up, which needs git.
	s, err := Start(context.WithoutCancel(t.Context()), c)
	if err != nil {
		t.Fatalf("starting the git server: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("stopping the git server: %v", err)
		}
	})
	return s
}

// NewSSH serves the same repositories over SSH too, and ends that with the test. It
// returns a private key that may log in, as a file of OpenSSH.
func (s *Server) NewSSH(t TB, c SSHConfig) (h *SSHServer, privateKey []byte) {
	t.Helper()
	signer, privateKey, err := NewKey("ed25519", "")
	if err != nil {
		t.Fatalf("making a key: %v", err)
	}
	c.Authorized = append(c.Authorized, signer.PublicKey())
	h, err = s.StartSSH(context.WithoutCancel(t.Context()), c)
	if err != nil {
		t.Fatalf("starting sshd: %v", err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("stopping sshd: %v", err)
		}
	})
	return h, privateKey
}

// NewRepository makes an empty repository that is checked when the test ends.
func (s *Server) NewRepository(t TB, name string, args ...string) *TestRepository {
	t.Helper()
	r, err := s.Create(t.Context(), name, args...)
	if err != nil {
		t.Fatalf("creating repository %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := r.Fsck(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("G10: %v", err)
		}
	})
	return &TestRepository{Repository: r, t: t}
}

// TestRepository is a Repository whose failures end the test.
type TestRepository struct {
	*Repository
	t TB
}

// Must runs a git command.
func (r *TestRepository) Must(args ...string) string {
	r.t.Helper()
	out, err := r.Git(r.t.Context(), args...)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return out
}

// MustHead is where the branch is.
func (r *TestRepository) MustHead(branch string) string {
	r.t.Helper()
	h, err := r.Head(r.t.Context(), branch)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return h
}

// MustShow is the content of a file.
func (r *TestRepository) MustShow(revision, path string) string {
	r.t.Helper()
	s, err := r.Show(r.t.Context(), revision, path)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return s
}

// MustCommit makes a foreign commit of these files.
func (r *TestRepository) MustCommit(branch string, files map[string]string) string {
	r.t.Helper()
	return r.MustCommitModes(branch, files, nil)
}

// MustCommitModes makes a foreign commit of files with these modes.
func (r *TestRepository) MustCommitModes(branch string, files, modes map[string]string) string {
	r.t.Helper()
	h, err := r.Commit(r.t.Context(), branch, ForeignCommit{Message: "foreign", Files: files, Modes: modes})
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return h
}

// MustHook installs a hook.
func (r *TestRepository) MustHook(name, script string) {
	r.t.Helper()
	if err := r.InstallHook(name, script); err != nil {
		r.t.Fatalf("installing hook %s: %v", name, err)
	}
}

// MustWrite writes one object.
func (r *TestRepository) MustWrite(kind, data string) string {
	r.t.Helper()
	h, err := r.WriteObject(r.t.Context(), kind, []byte(data))
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return h
}
