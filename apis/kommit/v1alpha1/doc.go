// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the kommit.dev/v1alpha1 API: where cluster edits go in
// Git (GitProvider, GitTarget), what is captured (WatchRule) and the Save
// button (CommitRequest). Its types are also the internal version: there is no
// second set to convert to until there is a second version to serve.
//
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +k8s:openapi-gen=true
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:openapi-model-package=com.github.kommit-dev.kommit.apis.kommit.v1alpha1
// +groupName=kommit.dev
package v1alpha1
