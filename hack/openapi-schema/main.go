// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command openapi-schema prints the schema of the API's types as JSON:
// applyconfiguration-gen needs it to say who owns which field.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	generated "github.com/kommit-dev/kommit/generated/openapi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "openapi-schema:", err)
		os.Exit(1)
	}
}

func run() error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	config := &common.Config{
		Info:              &spec.Info{InfoProps: spec.InfoProps{Title: "kommit", Version: "v1alpha1"}},
		GetDefinitions:    generated.GetOpenAPIDefinitions,
		GetDefinitionName: openapi.NewDefinitionNamer(scheme).GetDefinitionName,
	}
	var names []string
	for name := range generated.GetOpenAPIDefinitions(func(string) spec.Ref { return spec.Ref{} }) {
		names = append(names, name)
	}
	swagger, err := builder.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(swagger)
}
