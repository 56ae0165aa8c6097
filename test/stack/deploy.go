// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kommit-dev/kommit/test/controlplane"
)

// deployment is artifacts/deploy as kustomize builds it.
type deployment struct {
	objects                                        []*unstructured.Unstructured
	apiService, service, namespace, serviceAccount string
}

// readDeployment builds artifacts/deploy with kubectl's own kustomize.
func (s *Stack) readDeployment(ctx context.Context) (*deployment, error) {
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(s.binaries, "kubectl"), "kustomize", filepath.Join(s.root, "artifacts", "deploy"))
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, problems.String())
	}
	d := &deployment{}
	decoder := yaml.NewYAMLOrJSONDecoder(&out, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("artifacts/deploy: %w", err)
		}
		d.objects = append(d.objects, object)
		switch object.GetKind() {
		case "APIService":
			d.apiService = object.GetName()
			d.service, _, _ = unstructured.NestedString(object.Object, "spec", "service", "name")
			d.namespace, _, _ = unstructured.NestedString(object.Object, "spec", "service", "namespace")
		case "Deployment":
			d.serviceAccount, _, _ = unstructured.NestedString(object.Object, "spec", "template", "spec", "serviceAccountName")
		}
	}
	if d.service == "" || d.namespace == "" || d.serviceAccount == "" {
		return nil, errors.New("artifacts/deploy has no APIService with a Service, or no Deployment with a ServiceAccount")
	}
	return d, nil
}

// manifests are what is applied as shipped, except for what only a container
// runtime can run, and for where the server is: outside any pod, behind a
// Service that the control plane harness made.
func (d *deployment) manifests(e *controlplane.Extension) (string, error) {
	var documents []string
	for _, object := range d.objects {
		switch object.GetKind() {
		case "Deployment", "PersistentVolumeClaim", "Service", "PodDisruptionBudget":
			continue
		case "APIService":
			object = object.DeepCopy()
			spec := object.Object["spec"].(map[string]any)
			spec["caBundle"] = e.CA
			spec["service"].(map[string]any)["port"] = e.Port
			delete(spec, "insecureSkipTLSVerify")
		}
		document, err := sigsyaml.Marshal(object.Object)
		if err != nil {
			return "", fmt.Errorf("artifacts/deploy: %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		documents = append(documents, string(document))
	}
	return strings.Join(documents, "---\n"), nil
}
