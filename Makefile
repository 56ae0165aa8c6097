# Copyright The Kommit Authors.
# SPDX-License-Identifier: Apache-2.0

# Everything here works from a clean clone with Go, git and make. No tool is
# installed: those that are needed are built by Go from the modules in hack/tools
# and test/controlplane/binaries. The tests also want OpenSSH: ssh and ssh-keygen,
# and its server, which is taken from Debian's package if it is not installed.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -o errexit -o nounset -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# B selects benchmarks by name, as a regular expression; empty means all.
B ?=
# How often make chaos kills the server, and the seed of what is random there; 0 takes
# one from the clock.
KILLS ?= 200
SEED ?= 0
# Flags for every go test, such as TESTFLAGS='-run Window -v'.
TESTFLAGS ?=

# One set of build flags everywhere, that of the test control plane: what it has in
# common with kommit, which is most, is then compiled once.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
export CGO_ENABLED := 0

# The race detector needs a C compiler; Go knows whether there is one.
RACE := $(if $(filter 1,$(shell env -u CGO_ENABLED go env CGO_ENABLED)),-race)
GOTEST := CGO_ENABLED=$(if $(RACE),1,0) go test $(RACE) -timeout 20m

TOOL  := go tool -modfile=hack/tools/go.mod
CHECK := go run -C hack/tools
SECTION = @printf '\n=== %s\n'

UNIT        = $$(go list ./... | grep -v '/test/')
# The tests of the storage are run by hack/conformance, unless some are selected.
SELECTED    = $(filter -run% -skip%,$(TESTFLAGS))
UNIT_REST   = $$(go list ./... | grep -vE '/test/|/pkg/storage/bolt$$')
INTEGRATION = $$(go list ./test/... | grep -v -e '/test/e2e' -e '/test/chaos')

##@ Use

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build kommit-apiserver and the kubectl plugin into bin/.
	@mkdir -p bin
	go build -o bin/ ./cmd/kommit-apiserver ./cmd/kubectl-commit
	@ln -sf kubectl-commit bin/kubectl-create-commitrequest

.PHONY: demo
demo: ## Play the story on a real control plane; Ctrl-C ends it.
	go run ./test/demo

.PHONY: demo-down
demo-down: ## Stop the demo and remove its state.
	go run ./test/demo -down

##@ Test

.PHONY: test
test: ## Run everything: verify, unit, integration, e2e.
ifeq ($(RACE),)
	@echo "WARNING: NO C COMPILER FOUND: THE RACE DETECTOR IS OFF. Install one to test as CI does."
endif
	@$(MAKE) verify
	@$(MAKE) test-unit
	@$(MAKE) test-integration
	@$(MAKE) test-e2e
	$(SECTION) 'all passed'

.PHONY: test-fast
test-fast: sshd ## Run the unit tests without the race detector, for the inner loop.
	go test $(TESTFLAGS) $(UNIT)

.PHONY: test-unit
test-unit: sshd ## Run the unit tests.
	$(SECTION) unit
	$(GOTEST) $(TESTFLAGS) $(if $(SELECTED),$(UNIT),$(UNIT_REST))
	cd hack/tools && go test ./...
	$(if $(SELECTED),,@$(MAKE) conformance)

.PHONY: conformance update-conformance
conformance: ## Test the storage, and that no test of etcd3's is missing.
	$(SECTION) conformance
	@go run ./hack/conformance -- $(RACE) -timeout=20m $(TESTFLAGS)
update-conformance: ## Record the names of etcd3's tests, after an update of k8s.io/apiserver.
	go run ./hack/conformance -update

.PHONY: update-recordings
update-recordings: controlplane ## Record anew what audit and watches say, for the tests of attribution.
	go run ./test/recording/record

.PHONY: test-integration
test-integration: controlplane sshd ## Run the tests of the test control plane and its users.
	$(SECTION) integration
	$(GOTEST) $(TESTFLAGS) $(INTEGRATION)
	$(SECTION) chaos
	$(GOTEST) $(TESTFLAGS) ./test/chaos

.PHONY: test-e2e
test-e2e: controlplane ## Run the end-to-end tests on a real control plane.
	$(SECTION) e2e
	$(GOTEST) $(TESTFLAGS) ./test/e2e/...

.PHONY: chaos
chaos: controlplane ## Kill the server at random, with every fault; KILLS=n SEED=s.
	go test -count=1 -timeout 3h -v ./test/chaos -run '^TestNothingIsLost' -args -kills=$(KILLS) -seed=$(SEED)

.PHONY: bench
bench: ## Measure against others; B=regexp selects by name.
	go run ./test/bench $(if $(B),-bench='$(B)')

.PHONY: controlplane
controlplane: ## Build etcd and Kubernetes for the tests (minutes the first time).
	@go run ./hack/controlplane >/dev/null
.PHONY: sshd
sshd: ## Unpack Debian's sshd for the tests, if none is installed.
	@go run ./hack/sshd >/dev/null

##@ Verify and update: each verify-x that fails is put right by its update-x

CHECKS := gofmt boilerplate sleep links mod generated vet licences lint vuln

.PHONY: verify
verify: $(CHECKS:%=verify-%) ## Run all checks of the sources.

.PHONY: update
update: update-generated update-boilerplate update-gofmt update-lint update-licences ## Bring everything up to date that can be.

# Modules under hack and test have go.mod files of their own; gofmt sees all.
GOFMT_FILES = $$(git ls-files --cached --others --exclude-standard '*.go' | while read -r f; do [[ ! -f $$f ]] || echo "$$f"; done)

.PHONY: verify-gofmt update-gofmt
verify-gofmt:
	$(SECTION) verify-gofmt
	@out=$$(gofmt -s -l $(GOFMT_FILES)); [[ -z $$out ]] || { echo "$$out"; echo "run make update-gofmt"; exit 1; }
update-gofmt:
	gofmt -s -w $(GOFMT_FILES)

.PHONY: verify-boilerplate update-boilerplate
verify-boilerplate:
	$(SECTION) verify-boilerplate
	@$(CHECK) ./boilerplate -root ../..
update-boilerplate:
	$(CHECK) ./boilerplate -root ../.. -write

.PHONY: verify-links
verify-links:
	$(SECTION) verify-links
	@$(CHECK) ./links -root ../..

.PHONY: verify-sleep
verify-sleep:
	$(SECTION) verify-sleep
	@$(CHECK) ./sleep -root ../..

.PHONY: verify-mod update-mod
verify-mod:
	$(SECTION) verify-mod
	@go mod tidy -diff || { echo "run make update-mod"; exit 1; }
update-mod:
	go mod tidy

.PHONY: verify-generated update-generated
verify-generated:
	$(SECTION) verify-generated
	@hack/verify-generated.sh
update-generated:
	hack/update-codegen.sh

.PHONY: verify-vet
verify-vet:
	$(SECTION) verify-vet
	@go vet ./...
	@cd hack/tools && go vet ./...

.PHONY: verify-lint update-lint
verify-lint:
	$(SECTION) verify-lint
	@$(TOOL) golangci-lint config verify
	@$(TOOL) golangci-lint run ./...
update-lint:
	$(TOOL) golangci-lint run --fix ./...

.PHONY: verify-licences update-licences
verify-licences:
	$(SECTION) verify-licences
	@$(CHECK) ./licences -root ../..
update-licences:
	$(CHECK) ./licences -root ../.. -write

.PHONY: verify-vuln
verify-vuln:
	$(SECTION) verify-vuln
	@go build -C hack/tools -o ../../.cache/tools/ ./vuln
	@.cache/tools/vuln ./...
