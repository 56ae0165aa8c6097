// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package degraded tests that kommit says so when kube-apiserver is not set up for
// attribution, and that nothing but the author is lost by it (C12).
package degraded

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/stack"
)

const (
	namespace = "shop"
	target    = "prod"
	branch    = "main"
)

// policyOf records ConfigMaps so and nothing else.
func policyOf(level string) string {
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: ` + level + `
  resources: [{resources: [configmaps]}]
- level: None
`
}

func TestC12WhatIsMissingIsSaid(t *testing.T) {
	for _, tt := range []struct {
		name, level string
		flags       []string
		want        string
		// cure is the flag that the message names.
		cure string
	}{
		{"a policy without bodies", "Metadata", nil, v1alpha1.ReasonNoResponseBodies, "--audit-policy-file"},
		{"no events", "None", nil, v1alpha1.ReasonNoAuditEvents, "--audit-webhook-config-file"},
		{
			"a long batch wait", "RequestResponse", []string{"--audit-webhook-mode=batch", "--audit-webhook-batch-max-wait=8s"},
			v1alpha1.ReasonAuditEventsLate, "--audit-webhook-batch-max-wait",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy := filepath.Join(t.TempDir(), "policy.yaml")
			if err := os.WriteFile(policy, []byte(policyOf(tt.level)), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := stack.Start(t.Context(), stack.Config{
				Dir: t.TempDir(), Log: os.Stderr, AuditPolicy: policy, AuditFlags: tt.flags, ServerArgs: []string{"--attribution-grace=1s"},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
				defer cancel()
				if err := s.Stop(ctx); err != nil {
					t.Error(err)
				}
			})
			if err := s.SetUpShop(t.Context(), stack.Shop{Namespace: namespace, Target: target, Branch: branch, Repository: namespace, Users: []string{"alice"}}); err != nil {
				t.Fatal(err)
			}
			kubectl := func(user string, args ...string) string {
				out, _, err := s.ControlPlane.Kubectl(t.Context(), user, append(args, "--namespace="+namespace)...)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			kubectl(controlplane.Admin, "wait", "--for=condition=AttributionDegraded=False", "gittarget/"+target, "--timeout=60s")
			kubectl("alice", "create", "configmap", "settings", "--from-literal=mode=fast")
			kubectl(controlplane.Admin, "wait", "--for=condition=AttributionDegraded=True", "gittarget/"+target, "--timeout=60s")
			got := kubectl(controlplane.Admin, "get", "gittarget", target,
				"-o", `jsonpath={range .status.conditions[?(@.type=="AttributionDegraded")]}{.reason} {.message}{end}`)
			if reason, message, _ := strings.Cut(got, " "); reason != tt.want || !strings.Contains(message, tt.cure) {
				t.Errorf("got %q, want reason %s and %s", got, tt.want, tt.cure)
			}
			// The target is no less ready.
			kubectl(controlplane.Admin, "wait", "--for=condition=Ready", "gittarget/"+target, "--timeout=10s")
		})
	}
}
