// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/kommit-dev/kommit/test/controlplane"
)

// configuration is one way to set up audit.
type configuration struct {
	name   string
	policy string
	flags  []string
}

// configurations are what is recorded: the recommended policy with the recommended
// and with slower flags, and what users may have instead.
func configurations() []configuration {
	recommended := controlplane.RecommendedAuditFlags()
	return []configuration{
		{"recommended", recommendedPolicy(), recommended},
		{"batched", recommendedPolicy(), []string{"--audit-webhook-mode=batch", "--audit-webhook-batch-max-wait=400ms", "--audit-webhook-batch-max-size=12"}},
		{"everything", policy(nil, "level: RequestResponse", everything), recommended},
		{"no-managed-fields", policy(omitted(), "level: RequestResponse\n  omitManagedFields: true", everything), recommended},
		{"request", policy(omitted(), "level: Request", everything), recommended},
		{"metadata", policy(omitted(), "level: Metadata", everything), recommended},
		{"truncated", recommendedPolicy(), append(recommended,
			"--audit-webhook-truncate-enabled", "--audit-webhook-truncate-max-event-size=32768", "--audit-webhook-truncate-max-batch-size=65536")},
	}
}

// omitted are the stages that say nothing about the outcome.
func omitted() []string { return []string{"RequestReceived", "ResponseStarted"} }

const everything = "namespaces: [" + namespace + "]"

// recommendedPolicy is that of artifacts/audit for the kinds of the script, Widgets,
// Pods and ReplicaSets added as its page says.
func recommendedPolicy() string {
	return policy(omitted(), "level: RequestResponse", `resources:
  - group: ""
    resources: [configmaps, pods, pods/eviction, serviceaccounts, services]
  - group: apps
    resources: [deployments, deployments/scale, replicasets]
  - group: example.com
    resources: [widgets, widgets/scale]`, everything)
}

// policy has one rule for the level, after those that keep reads and credentials out.
func policy(omit []string, level string, scope ...string) string {
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [` + strings.Join(omit, ", ") + `]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - group: ""
    resources: [secrets, serviceaccounts/token]
  - group: authentication.k8s.io
- ` + level + `
  ` + strings.Join(scope, "\n  ") + `
- level: None
`
}
