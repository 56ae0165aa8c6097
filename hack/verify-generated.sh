#!/usr/bin/env bash
# Copyright The Kommit Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Generates everything again, in place, and fails if any file of the checkout
# changed, came or went by that. Changes that were there before do not count, so
# it also works in the middle of other work.

set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "${scratch}"' EXIT

# snapshot prints the tree of all files that are or could be committed. Its
# index is a scratch one: the real one keeps what is staged in it.
snapshot() {
  rm -f "${scratch}/index"
  GIT_INDEX_FILE="${scratch}/index" git add --all
  GIT_INDEX_FILE="${scratch}/index" git write-tree
}

before=$(snapshot)
hack/update-codegen.sh
after=$(snapshot)
if ! git diff --exit-code "${before}" "${after}" >"${scratch}/diff"; then
  head -100 "${scratch}/diff" >&2
  git diff --stat "${before}" "${after}" >&2
  echo "Generated files were out of date. They have been written anew: look at them and commit them." >&2
  exit 1
fi
