// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deploy_test checks the Deployment against the server that it runs.
package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kommit-dev/kommit/pkg/apiserver"
)

// The server knows each flag, and what it writes and reads is mounted.
func TestDeploymentsFlags(t *testing.T) {
	container := deploymentsContainer(t)
	options, flags := apiserver.NewOptions(), pflag.NewFlagSet("kommit-apiserver", pflag.ContinueOnError)
	options.AddFlags(flags)
	if err := flags.Parse(container.Args); err != nil {
		t.Fatal(err)
	}
	if err := options.Validate(); err != nil {
		t.Error(err)
	}
	if port := options.Recommended.SecureServing.BindPort; port != int(container.Ports[0].ContainerPort) {
		t.Errorf("listens on %d, the container's port is %d", port, container.Ports[0].ContainerPort)
	}
	var mounted []string
	for _, mount := range container.VolumeMounts {
		mounted = append(mounted, mount.MountPath)
	}
	pair := options.Recommended.SecureServing.ServerCert.CertKey
	for _, file := range []string{options.StorageFile, pair.CertFile, pair.KeyFile} {
		if !slices.Contains(mounted, filepath.Dir(file)) {
			t.Errorf("%s is not on a volume: %v", file, mounted)
		}
	}
}

// The pod has the time that the server takes to stop: to be noticed, to push its
// windows, and to end what is in flight.
func TestGracePeriod(t *testing.T) {
	var deployment appsv1.Deployment
	read(t, "deployment.yaml", &deployment)
	options, flags := apiserver.NewOptions(), pflag.NewFlagSet("kommit-apiserver", pflag.ContinueOnError)
	options.AddFlags(flags)
	if err := flags.Parse(deployment.Spec.Template.Spec.Containers[0].Args); err != nil {
		t.Fatal(err)
	}
	const rest = 15 * time.Second
	grace := time.Duration(*deployment.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if needed := options.ShutdownDelay + options.FlushTimeout + rest; grace < needed {
		t.Errorf("terminationGracePeriodSeconds is %s, a stop may take %s", grace, needed)
	}
}

// A server that waits for its storage file, or whose disk is full, is left alone:
// a restart helps with neither.
func TestProbes(t *testing.T) {
	container := deploymentsContainer(t)
	for name, test := range map[string]struct {
		probe *corev1.Probe
		path  string
	}{
		"startup":   {container.StartupProbe, "/livez"},
		"liveness":  {container.LivenessProbe, "/livez"},
		"readiness": {container.ReadinessProbe, "/readyz"},
	} {
		if test.probe == nil || test.probe.HTTPGet == nil || test.probe.HTTPGet.Path != test.path || test.probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("%s probe: %v, want %s over HTTPS", name, test.probe, test.path)
		}
	}
}

// The roles are for paths that the server serves, with the verbs that they need.
func TestRolesForNonResourceURLs(t *testing.T) {
	want := map[string]string{
		"clusterrole-audit-writer.yaml": "post " + apiserver.AuditPath,
		"clusterrole-backup.yaml":       "get " + apiserver.BackupPath,
	}
	manifests, err := filepath.Glob("clusterrole-*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range manifests {
		var role rbacv1.ClusterRole
		read(t, file, &role)
		for _, rule := range role.Rules {
			if got := strings.Join(rule.Verbs, ",") + " " + strings.Join(rule.NonResourceURLs, ","); len(rule.NonResourceURLs) > 0 && got != want[file] {
				t.Errorf("%s: %s, want %q", file, got, want[file])
			} else if len(rule.NonResourceURLs) > 0 {
				delete(want, file)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no role for %v", want)
	}
}

func deploymentsContainer(t *testing.T) corev1.Container {
	t.Helper()
	var deployment appsv1.Deployment
	read(t, "deployment.yaml", &deployment)
	return deployment.Spec.Template.Spec.Containers[0]
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	manifest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(manifest, into); err != nil {
		t.Fatal(err)
	}
}
