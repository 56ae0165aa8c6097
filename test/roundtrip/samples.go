// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roundtrip has what the test of the round trip is made of: manifests of
// each kind, from Kubernetes' own repositories and from testdata.
package roundtrip

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// sample is a manifest, and where it is from.
type sample struct {
	origin string
	text   []byte
	object *unstructured.Unstructured
	// required: an API server that refuses it is an error.
	required bool
}

// publicDirs of k8s.io/kubernetes have manifests that are meant to be applied.
var publicDirs = []string{"test/e2e/testing-manifests", "test/fixtures", "hack/testdata", "cluster/addons", "test/conformance/testdata"}

// kubernetesDir returns where the sources of k8s.io/kubernetes are, in the version
// of the control plane.
func kubernetesDir(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "k8s.io/kubernetes")
	cmd.Dir = filepath.Join("..", "controlplane", "binaries")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("finding k8s.io/kubernetes: %w: %s", err, stderr.String())
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", err
	}
	return module.Dir, nil
}

// publicSamples reads the manifests of k8s.io/kubernetes. Templates and what else
// cannot be read is passed over: a part of it is there to be wrong.
func publicSamples(ctx context.Context) ([]sample, error) {
	root, err := kubernetesDir(ctx)
	if err != nil {
		return nil, err
	}
	var found []sample
	for _, dir := range publicDirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".json" {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			origin, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			found = append(found, readSamples(origin, content)...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// readSamples returns the objects of a file up to the first that cannot be read.
func readSamples(origin string, content []byte) []sample {
	var found []sample
	reader := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	defer reader.Close()
	buffer := make([]byte, len(content)+1)
	for {
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) || err != nil {
			return found
		}
		object, err := readObject(buffer[:n])
		if err != nil {
			return found
		}
		if u := (&unstructured.Unstructured{Object: object}); u.GetKind() != "" && u.GetName() != "" {
			found = append(found, sample{origin: origin, text: bytes.Clone(buffer[:n]), object: u})
		}
	}
}

// readObject reads a document as kubectl does.
func readObject(document []byte) (map[string]any, error) {
	asJSON, err := sigsyaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	return object, utiljson.Unmarshal(asJSON, &object)
}
