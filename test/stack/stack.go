// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stack runs all of kommit on real parts: a control plane, a Git server
// and kommit-apiserver, registered as an APIService by the manifests of
// artifacts/deploy and run under its own ServiceAccount. The demo, the
// end-to-end tests and the benchmarks stand on it.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/controlplane/build"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// auditUser is the user that kube-apiserver's audit webhook authenticates as
// (artifacts/deploy grants it the right to write to /audit).
const auditUser = "kommit-audit"

// Config says what to run.
type Config struct {
	// Dir is the state folder. Required.
	Dir string
	// Log tells what is being built and started. Required.
	Log io.Writer
	// RaceDetector builds kommit-apiserver with it.
	RaceDetector bool
	// Failpoints builds it with the instants of pkg/failpoint at which it can be told
	// to kill itself.
	Failpoints bool
	// AuditFlags are the --audit-webhook-* flags; nil for the recommended ones.
	AuditFlags []string
	// AuditPolicy is the file of the audit policy; empty for that of artifacts/audit.
	AuditPolicy string
	// AuditThrough, when set, is given kommit-apiserver's address and returns the one
	// that audit events are sent to: a test's that gets in between.
	AuditThrough func(server string) (address string, err error)
	// APIServerArgs are more flags for kube-apiserver; one given here wins.
	APIServerArgs []string
	// StorageFile is kommit-apiserver's; empty for one in Dir.
	StorageFile string
	// ServerArgs are more flags for kommit-apiserver; one given here wins.
	ServerArgs []string
}

// Stack is everything, running. Its methods are safe for concurrent use, Start
// and Stop excepted.
type Stack struct {
	ControlPlane *controlplane.ControlPlane
	Git          *gitserver.Server
	// Extension is where kommit-apiserver listens.
	Extension *controlplane.Extension

	config   Config
	root     string
	binaries string // the control plane's programs
	plugins  string // kommit's own
	deployed *deployment
}

// Credentials of the Git server.
const (
	GitUsername = "kommit"
	GitPassword = "only-for-this-machine"
)

// Start builds what is missing, starts everything, and returns when the
// APIService is Available. On an error nothing is left running. ctx bounds the
// start only.
func Start(ctx context.Context, c Config) (*Stack, error) {
	s := &Stack{config: c}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) (err error) {
	if s.root, err = build.RepositoryRoot(); err != nil {
		return err
	}
	if s.binaries, err = controlplane.EnsureBinaries(ctx, s.config.Log); err != nil {
		return err
	}
	if s.plugins, err = s.buildKommit(ctx); err != nil {
		return err
	}
	if s.deployed, err = s.readDeployment(ctx); err != nil {
		return err
	}
	s.say("starting the Git server")
	repositories := filepath.Join(s.config.Dir, "git")
	if err := os.MkdirAll(repositories, 0o700); err != nil {
		return err
	}
	s.Git, err = gitserver.Start(context.WithoutCancel(ctx), gitserver.Config{Dir: repositories, Username: GitUsername, Password: GitPassword})
	if err != nil {
		return err
	}
	policy := cmp.Or(s.config.AuditPolicy, filepath.Join(s.root, "artifacts", "audit", "policy.yaml"))
	webhook := filepath.Join(s.config.Dir, "audit-webhook.kubeconfig")
	s.ControlPlane, err = controlplane.New(controlplane.Config{
		Dir: s.config.Dir, BinDir: s.binaries, PluginDir: s.plugins, WithControllerManager: true,
		Audit:         controlplane.Audit{WebhookKubeconfig: webhook, Policy: policy, BatchFlags: s.config.AuditFlags},
		APIServerArgs: s.config.APIServerArgs,
	})
	if err != nil {
		return err
	}
	if s.Extension, err = s.ControlPlane.PrepareExtension(ctx, s.deployed.service, s.deployed.namespace); err != nil {
		return err
	}
	through := ""
	if s.config.AuditThrough != nil {
		if through, err = s.config.AuditThrough(strings.TrimPrefix(s.Extension.URL(), "https://")); err != nil {
			return err
		}
	}
	if err := s.Extension.WriteAuditKubeconfig(webhook, "/audit", through, auditUser); err != nil {
		return err
	}
	s.say("starting etcd, kube-apiserver and kube-controller-manager")
	if err := s.ControlPlane.Start(ctx); err != nil {
		return err
	}
	if err := s.Extension.Expose(ctx); err != nil {
		return err
	}
	manifests, err := s.deployed.manifests(s.Extension)
	if err != nil {
		return err
	}
	if err := s.apply(ctx, manifests); err != nil {
		return err
	}
	s.say("starting kommit-apiserver as ServiceAccount %s/%s", s.deployed.namespace, s.deployed.serviceAccount)
	if err := s.StartServer(ctx); err != nil {
		return err
	}
	_, _, err = s.ControlPlane.Kubectl(ctx, controlplane.Admin, "wait", "--for=condition=Available", "--timeout=60s", "apiservice/"+s.deployed.apiService)
	return err
}

// ServerProcess is the name of kommit-apiserver's process and of its log file.
const ServerProcess = "kommit-apiserver"

// StartServer runs kommit-apiserver, on the same data as before if it ran
// already, and returns when it is ready. On an error it does not run; one that ended
// by itself is a *controlplane.ExitedError. environment is added to this process's
// own, as name=value, for this run only.
func (s *Stack) StartServer(ctx context.Context, environment ...string) error {
	kubeconfig, err := s.ControlPlane.ServiceAccountKubeconfig(ctx, s.deployed.namespace, s.deployed.serviceAccount)
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.Extension.Port),
		"--tls-cert-file=" + s.Extension.CertFile,
		"--tls-private-key-file=" + s.Extension.KeyFile,
		"--storage-file=" + s.StorageFile(),
		"--allow-insecure-http",
	}
	_, err = s.ControlPlane.Run(ctx, controlplane.Command{
		Name:  ServerProcess,
		Path:  filepath.Join(s.plugins, ServerProcess),
		Args:  append(args, s.config.ServerArgs...),
		Env:   append(os.Environ(), environment...),
		Ready: s.Extension.Ready,
	})
	return err
}

// StorageFile is kommit-apiserver's.
func (s *Stack) StorageFile() string {
	return cmp.Or(s.config.StorageFile, filepath.Join(s.config.Dir, "kommit.db"))
}

// StopServer ends kommit-apiserver and leaves its data.
func (s *Stack) StopServer(ctx context.Context) error {
	return s.ControlPlane.StopProcess(ctx, s.ControlPlane.Process(ServerProcess))
}

// Stop ends everything; the state folder stays.
func (s *Stack) Stop(ctx context.Context) error {
	var errs []error
	if s.ControlPlane != nil {
		errs = append(errs, s.ControlPlane.Stop(ctx))
	}
	if s.Git != nil {
		errs = append(errs, s.Git.Close())
	}
	return errors.Join(errs...)
}

// PluginDir holds the kubectl plugins.
func (s *Stack) PluginDir() string { return s.plugins }

// Root is the checkout that kommit was built from.
func (s *Stack) Root() string { return s.root }

func (s *Stack) apply(ctx context.Context, manifests string) error {
	_, _, err := s.ControlPlane.KubectlInput(ctx, controlplane.Admin, strings.NewReader(manifests), "apply", "--filename=-")
	return err
}

func (s *Stack) say(format string, args ...any) {
	fmt.Fprintf(s.config.Log, format+"\n", args...)
}

// BinDir holds the control plane's programs, kubectl among them.
func (s *Stack) BinDir() string { return s.binaries }
