// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deploy_test checks the Deployment against the server that it runs.
package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/kommit-dev/kommit/pkg/apiserver"
)

// The server knows each flag, and what it writes and reads is mounted.
func TestDeploymentsFlags(t *testing.T) {
	manifest, err := os.ReadFile("deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(manifest, &deployment); err != nil {
		t.Fatal(err)
	}
	container := deployment.Spec.Template.Spec.Containers[0]
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
