// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/openapi"

	"github.com/kommit-dev/kommit/apis/kommit/install"
	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// newScheme returns the scheme that requests are decoded and objects stored
// with.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	// What every group answers with, whatever its version.
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{},
		&metav1.APIVersions{},
		&metav1.APIGroupList{},
		&metav1.APIGroup{},
		&metav1.APIResourceList{},
	)
	return scheme
}

// newDefinitionNamer names the schemas of the OpenAPI documents. Its scheme does
// not know the internal version, which would be listed as a version to use.
func newDefinitionNamer() *openapi.DefinitionNamer {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return openapi.NewDefinitionNamer(scheme)
}

// storageCodec reads and writes what is stored: v1alpha1.
func storageCodec(codecs serializer.CodecFactory) runtime.Codec {
	return codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)
}
