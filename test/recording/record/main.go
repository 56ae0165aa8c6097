// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Record writes the recordings of test/recording anew: for each audit configuration
// it starts the test control plane, has users do what script.go says, and keeps what
// the audit webhook and the watches bring. It takes some minutes.
//
//	go run ./test/recording/record [-only name]
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/recording"
)

const (
	testdata = "test/recording/testdata"
	// kubectl is what most users' programs call themselves.
	kubectl = "kubectl/v1.37.2 (linux/amd64) kubernetes/recorded"
	// quiet is longer than any batch waits.
	quiet = 3 * time.Second
	// sceneTimeout bounds one run of the script.
	sceneTimeout = 5 * time.Minute
)

func main() {
	only := flag.String("only", "", "record this one alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := recordAll(ctx, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func recordAll(ctx context.Context, only string) error {
	binaries, err := controlplane.EnsureBinaries(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(testdata, 0o755); err != nil {
		return err
	}
	for _, c := range configurations() {
		if only != "" && only != c.name {
			continue
		}
		r, err := record(ctx, binaries, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		var b bytes.Buffer
		if err := r.Write(&b); err != nil {
			return err
		}
		file := filepath.Join(testdata, c.name+".json.gz")
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			return err
		}
		fmt.Printf("%s: %d batches, %d watch events, %d deeds, %d bytes\n", file, len(r.Batches), len(r.Watch), len(r.Truth), b.Len())
	}
	return nil
}

// record plays the script under one configuration.
func record(ctx context.Context, binaries string, c configuration) (recorded *recording.Recording, err error) {
	ctx, cancel := context.WithTimeout(ctx, sceneTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	webhook, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	defer webhook.close()
	audit := controlplane.Audit{
		WebhookKubeconfig: filepath.Join(dir, "webhook.kubeconfig"), Policy: filepath.Join(dir, "policy.yaml"), BatchFlags: c.flags,
	}
	if err := webhook.kubeconfig(audit.WebhookKubeconfig); err != nil {
		return nil, err
	}
	if err := os.WriteFile(audit.Policy, []byte(c.policy), 0o600); err != nil {
		return nil, err
	}
	cp, err := controlplane.Start(ctx, controlplane.Config{Dir: filepath.Join(dir, "state"), BinDir: binaries, Audit: audit, WithControllerManager: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = cp.Stop(context.WithoutCancel(ctx)) }()
	return play(ctx, cp, webhook, c)
}

// play has the users act, and collects.
func play(ctx context.Context, cp *controlplane.ControlPlane, webhook *receiver, c configuration) (*recording.Recording, error) {
	config, err := cp.RESTConfig(controlplane.Admin)
	if err != nil {
		return nil, err
	}
	admin, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, admin); err != nil {
		return nil, err
	}
	l := &ledger{}
	s, err := cast(ctx, cp, l)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if s.watch, err = watchAll(watching, admin, namespace, configMaps, services, pods, serviceAccounts, deployments, replicaSets, widgets); err != nil {
		return nil, err
	}
	if err := webhook.settle(ctx, quiet); err != nil {
		return nil, err
	}
	webhook.forget()
	began := time.Now()
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if err := webhook.settle(ctx, quiet); err != nil {
		return nil, err
	}
	r := &recording.Recording{Flags: c.flags, Policy: c.policy}
	if r.Batches, err = webhook.take(); err != nil {
		return nil, err
	}
	list, events, err := s.watch.take()
	if err != nil {
		return nil, err
	}
	r.Watch = events
	controllers, err := controllersDeeds(list, l.deeds)
	if err != nil {
		return nil, err
	}
	r.Truth = append(l.deeds, controllers...)
	return r, r.Scrub(began)
}

// cast makes the users.
func cast(ctx context.Context, cp *controlplane.ControlPlane, l *ledger) (*script, error) {
	s := &script{ledger: l}
	const masters = "system:masters"
	for _, a := range []struct {
		actor     **actor
		name      string
		groups    []string
		userAgent string
	}{
		{&s.alice, "alice@example.com", []string{masters}, kubectl},
		{&s.bob, "bob", []string{masters}, kubectl},
		{&s.carol, "carol", []string{masters}, "flux/v2.7.0 (linux/amd64)"},
		{&s.mallory, "mallory", []string{"nobodies"}, kubectl},
	} {
		config, err := cp.RESTConfig(a.name, a.groups...)
		if err != nil {
			return nil, err
		}
		if *a.actor, err = newActor(config, a.name, a.userAgent, l); err != nil {
			return nil, err
		}
	}
	config, err := cp.RESTConfig("bob", masters)
	if err != nil {
		return nil, err
	}
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &schema.GroupVersion{Version: "v1"}, "/api", scheme.Codecs.WithoutConversion()
	config.UserAgent = kubectl
	if s.tables, err = rest.RESTClientFor(config); err != nil {
		return nil, err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "erin", Groups: []string{masters}}
	if s.impersonated, err = newActor(config, "erin", kubectl, l); err != nil {
		return nil, err
	}
	file, err := cp.ServiceAccountKubeconfig(ctx, "ops", "deployer")
	if err != nil {
		return nil, err
	}
	if config, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
		return nil, err
	}
	config.QPS = -1
	s.account, err = newActor(config, "system:serviceaccount:ops:deployer", kubectl, l)
	return s, err
}
