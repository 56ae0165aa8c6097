#!/usr/bin/env bash
# Copyright The Kommit Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes everything that is generated from apis/: the zz_generated files next to
# the types, and generated/. Running it twice, or from a clean clone, gives the
# same bytes; `git diff --exit-code` after it is the check.
#
# The generators are `tool` lines of go.mod, so they have the versions that the
# rest of the module has, and nothing is installed outside the build cache.

set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

module=github.com/kommit-dev/kommit
api=apis/kommit/v1alpha1
generators=k8s.io/code-generator/cmd
header=(--go-header-file hack/boilerplate.go.txt)

# Types of these packages are referenced, and have their own generated code.
readonly_packages=()
for package in \
  k8s.io/apimachinery/pkg/api/resource \
  k8s.io/apimachinery/pkg/apis/meta/v1 \
  k8s.io/apimachinery/pkg/runtime \
  k8s.io/apimachinery/pkg/types \
  k8s.io/apimachinery/pkg/util/intstr \
  k8s.io/apimachinery/pkg/version \
  time; do
  readonly_packages+=(--readonly-pkg "${package}")
done

# What a type that is gone would leave behind must go as well. Only what client-gen
# cannot make is written by hand, under the names that it looks for.
if [[ -d generated ]]; then
  find generated -type f ! -name '*_expansion.go' -delete
  find generated -name generated_expansion.go -delete
fi
rm -f "${api}"/zz_generated.*.go
mkdir -p generated/openapi

go tool "${generators}/deepcopy-gen" "${header[@]}" \
  --output-file zz_generated.deepcopy.go "./${api}"
go tool "${generators}/register-gen" "${header[@]}" \
  --output-file zz_generated.register.go "./${api}"
go tool "${generators}/defaulter-gen" "${header[@]}" \
  --output-file zz_generated.defaults.go "./${api}"
go tool "${generators}/validation-gen" "${header[@]}" \
  --output-file zz_generated.validations.go "./${api}"

# The report is committed: it holds the known violations of apimachinery's own
# types, and a new line in it is one of ours.
go tool k8s.io/kube-openapi/cmd/openapi-gen "${header[@]}" \
  --output-dir generated/openapi --output-pkg "${module}/generated/openapi" \
  --output-file zz_generated.openapi.go \
  --output-model-name-file zz_generated.model_name.go \
  --report-filename hack/api-violations.list \
  "${readonly_packages[@]}" \
  k8s.io/apimachinery/pkg/apis/meta/v1 \
  k8s.io/apimachinery/pkg/runtime \
  k8s.io/apimachinery/pkg/version \
  k8s.io/apimachinery/pkg/api/resource \
  "${module}/${api}"

schema=$(mktemp)
trap 'rm -f "${schema}"' EXIT
go run ./hack/openapi-schema >"${schema}"
go tool "${generators}/applyconfiguration-gen" "${header[@]}" \
  --openapi-schema "${schema}" \
  --output-dir generated/applyconfiguration \
  --output-pkg "${module}/generated/applyconfiguration" \
  "${module}/${api}"
go tool "${generators}/client-gen" "${header[@]}" \
  --output-dir generated/clientset --output-pkg "${module}/generated/clientset" \
  --clientset-name versioned \
  --apply-configuration-package "${module}/generated/applyconfiguration" \
  --input-base "${module}/apis" --input kommit/v1alpha1
go tool "${generators}/lister-gen" "${header[@]}" \
  --output-dir generated/listers --output-pkg "${module}/generated/listers" \
  "${module}/${api}"
go tool "${generators}/informer-gen" "${header[@]}" \
  --output-dir generated/informers --output-pkg "${module}/generated/informers" \
  --versioned-clientset-package "${module}/generated/clientset/versioned" \
  --listers-package "${module}/generated/listers" \
  "${module}/${api}"
