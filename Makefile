# spot-training-operator. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Images of the manager and of the training worker.
IMG ?= spot-training-operator:dev
WORKER_IMG ?= spot-training-operator-worker:dev
VERSION ?= dev
# The registry that the images of releases, bundles and catalogs are in. The version of the bundle is in the file VERSION.
REGISTRY ?= registry.example.com
BUNDLE_IMG ?= $(REGISTRY)/dcnlab/spot-training-operator-bundle:v$(file <VERSION)
CATALOG_IMG ?= $(REGISTRY)/dcnlab/spot-training-operator-catalog:latest
PLATFORMS ?= linux/amd64,linux/arm64
DOCKER ?= docker

# Built tools lie in BIN; the local cluster keeps all it has in .localcluster.
BIN ?= $(CURDIR)/.bin
CONTROLLER_GEN := $(BIN)/controller-gen
KUSTOMIZE := $(BIN)/kustomize
GOTESTSUM := $(BIN)/gotestsum
BENCHSTAT := $(BIN)/benchstat
GOLANGCI_LINT := $(BIN)/golangci-lint
GOVULNCHECK := $(BIN)/govulncheck
OPERATOR_SDK := $(BIN)/operator-sdk
OPM := $(BIN)/opm
CATALOG := $(BIN)/catalog
HELM := $(BIN)/helm
VERSITYGW := $(BIN)/versitygw
FAKE_GCS_SERVER := $(BIN)/fake-gcs-server
AZURITE := $(BIN)/azurite/package.json
KUEUE := $(BIN)/kueue
CRD_REF_DOCS := $(BIN)/crd-ref-docs
ACTIONLINT := $(BIN)/actionlint
KO := $(BIN)/ko
HUGO := $(BIN)/hugo
MERMAID := $(BIN)/mermaid/package.json

# Binaries carry VERSION, not the state of a git checkout that may belong to another user, and no paths: what one checkout has compiled
# serves all others of this machine. Without what only debuggers need it is compiled in less time.
NO_DWARF := -gcflags=all=-dwarf=false
export GOFLAGS := $(filter-out -buildvcs=% -trimpath $(NO_DWARF),$(GOFLAGS)) -buildvcs=false -trimpath $(NO_DWARF)
# Nothing here needs cgo but the race detector: tools, linters, tests and the manager then share what is compiled.
export CGO_ENABLED := 0
export BIN IMG WORKER_IMG VERSION REGISTRY

# What `make generate bundle catalog` writes, and `make verify` compares.
GENERATED := ':(glob)api/**/zz_generated*.go' config/crd/bases config/rbac/role.yaml config/namespaced/role.yaml config/webhook/manifests.yaml \
  charts config/manifests/bases bundle bundle.Dockerfile catalog docs/reference hack/bundle.sum

##@ General

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*##"} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9_-]+:.*##/ {printf "  %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@printf '\nVariables: IMG=%s WORKER_IMG=%s KUBECONFIG=%s\n' '$(IMG)' '$(WORKER_IMG)' "$${KUBECONFIG:-(none: the local cluster)}"

.PHONY: demo
demo: ## Start a real one-node Kubernetes, deploy the operator, watch a TrainingJob train (KUBECONFIG: use that cluster).
	@hack/demo.sh

.PHONY: clean
clean: ## Remove built tools and binaries (the local cluster is kept: see cluster-down).
	rm -rf $(BIN) bin dist

##@ Development

.PHONY: generate
generate: manifests reference ## Generate deepcopy code, CRDs, the manager's role, the webhooks, the API reference and the Helm chart.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	@$(MAKE) --no-print-directory chart

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate the CRDs, the manager's role and the webhooks only.
	@# Dangerous types: learning rates and backoff factors are plain numbers in the published manifests.
	$(CONTROLLER_GEN) crd:allowDangerousTypes=true,generateEmbeddedObjectMeta=true paths=./api/... output:crd:dir=config/crd/bases
	go generate ./api/...
	@# Kubernetes' own pattern lets 1e1.5 pass, which no client can read: one such object would break every list.
	sed -i 's/(\[eE\](\\+|-)?((\[0-9\]+(\\\.\[0-9\]\*)?)|(\\\.\[0-9\]+)))/([eE](\\+|-)?[0-9]{1,3})/' config/crd/bases/*.yaml
	$(CONTROLLER_GEN) rbac:roleName=manager-role paths=./controllers/... paths=./internal/... output:rbac:dir=config/rbac
	@# Of what is in namespaces it makes a Role of the same name. By default it holds in all namespaces.
	sed -i -e '/^kind: Role$$/,/^rules:/ {s/: Role$$/: ClusterRole/; s/manager-role/manager-namespaces-role/; /^  namespace:/d}' config/rbac/role.yaml
	@# The part of it that is left to a manager of some namespaces: that of the controllers that it has.
	$(CONTROLLER_GEN) rbac:roleName=namespaced-manager-role paths=./controllers/trainingjob/... paths=./controllers/spotinstancejob/... \
	  paths=./controllers/unserved/... paths=./internal/accessreview/... output:rbac:dir=config/namespaced
	$(CONTROLLER_GEN) webhook paths=./internal/webhook/... output:webhook:dir=config/webhook

.PHONY: reference
reference: $(CRD_REF_DOCS) ## Generate the API reference in docs/reference from the types only.
	@for group in ml/v1 spot/v1alpha1 aiplatform/v1alpha1; do \
	  $(CRD_REF_DOCS) --log-level ERROR --config hack/reference/config.yaml --templates-dir hack/reference/templates \
	    --renderer markdown --source-path api/$$group --output-path docs/reference/$${group%%/*}.md; \
	done

.PHONY: chart
chart: $(KUSTOMIZE) ## Generate the Helm chart from config/ and VERSION only.
	$(KUSTOMIZE) build hack/chart | go run ./hack/chart charts/spot-training-operator

.PHONY: verify
verify: generate $(KUSTOMIZE) ## Fail when generated files or go.mod differ from what is committed, config/ does not build or the bundle is unsound.
	@hack/bundle.sh is-recorded || $(MAKE) --no-print-directory catalog
	@hack/verify.sh $(GENERATED)

.PHONY: verify-bundle
verify-bundle: catalog ## The same, with the bundle and the catalog made again whatever hack/bundle.sum has on record.
	@hack/verify.sh $(GENERATED)

.PHONY: build
build: ## Build the manager for this machine into bin/manager.
	go build -trimpath -tags disable_grpc_modules,grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)' -o bin/manager .

.PHONY: run
run: ## Run the manager on this machine against the cluster of KUBECONFIG, with the CRDs installed there.
	@hack/run.sh

.PHONY: lint
lint: $(GOLANGCI_LINT) lint-workflows ## Run golangci-lint over all Go code, hack/words over all text, actionlint over the workflows, and shellcheck over the scripts where it is installed.
	go run ./hack/words
	$(GOLANGCI_LINT) run ./...
	cd hack/localcluster && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	@if command -v shellcheck >/dev/null; then set -x; shellcheck -x hack/*.sh .ci/run; fi

.PHONY: lint-workflows
lint-workflows: $(ACTIONLINT) ## Run actionlint over the workflows only.
	$(ACTIONLINT)

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the Go code.
	$(GOLANGCI_LINT) fmt ./...

.PHONY: vulncheck
vulncheck: $(GOVULNCHECK) ## Look for known vulnerabilities in what the code calls (asks the Go vulnerability database, or VULNDB).
	$(GOVULNCHECK) $(if $(VULNDB),-db $(VULNDB)) ./...

.PHONY: sbom
sbom: build ## List what the manager and the OLM bundle are made of, in the form of SPDX, in dist/sbom.
	@mkdir -p dist/sbom
	go run ./hack/sbom -name spot-training-operator -version $(VERSION) -program bin/manager >dist/sbom/spot-training-operator.spdx.json
	go run ./hack/sbom -name spot-training-operator-bundle -version $(file <VERSION) -folder bundle \
	  >dist/sbom/spot-training-operator-bundle.spdx.json

##@ Documentation

.PHONY: site
site: $(HUGO) $(MERMAID) ## Build the documentation site from docs/ into dist/site.
	@hack/site.sh dist/site

##@ Tests

.PHONY: test
test: $(GOTESTSUM) $(OPM) $(HELM) $(HUGO) $(MERMAID) store-servers ## Run the Python tests and all Go tests that need no live node; installs what they need.
	@hack/test.sh

.PHONY: kueue
kueue: $(GOTESTSUM) $(KUEUE) ## Run the test in which the released Kueue admits, evicts and readmits a TrainingJob on a real API server.
	@hack/test.sh kueue

.PHONY: chaos
chaos: ## Drive all controllers with random work while faults are injected, and check what must hold (CHAOS_SEEDS: another number than 500).
	@hack/chaos.sh chaos

.PHONY: fuzz
fuzz: ## Create 10,000 objects, right and wrong, and check that each is answered clearly (FUZZ_OBJECTS: another number).
	@hack/chaos.sh fuzz

.PHONY: soak
soak: ## Work for two hours, and check that memory, watches, writes and the database do not grow (SOAK_MINUTES: another time).
	@hack/chaos.sh soak

.PHONY: faults
faults: ## Kill services, workers, PostgreSQL and Redis under 100,000 jobs, and check the state of each (FAULT_JOBS: another number).
	@hack/faults.sh

.PHONY: store-servers
store-servers: $(VERSITYGW) $(FAKE_GCS_SERVER) $(AZURITE) ## Build and install the object stores that tests use.

.PHONY: e2e
e2e: $(GOTESTSUM) $(VERSITYGW) ## Run the end-to-end tests on the live node (started if it is not up) or on the cluster of KUBECONFIG.
	@hack/e2e.sh

.PHONY: spot-e2e
spot-e2e: $(GOTESTSUM) $(VERSITYGW) ## Run the end-to-end tests in which further machines join the live node as spot instances do, and are taken back.
	@E2E_MACHINES=yes E2E_ARGS='-run TestInstanceJoins|TestAPendingPod|OutlivesItsInstance|ToAnotherMachine|OnADeadMachine|EndsThoughItsCredentials' hack/e2e.sh

.PHONY: dr-e2e
dr-e2e: $(GOTESTSUM) $(VERSITYGW) ## Lose the live node while jobs run, and check that all of them go on in another one.
	@E2E_DRILL=yes E2E_ARGS='-run TestEverythingGoesOnInAnotherCluster' hack/e2e.sh

.PHONY: olm-e2e
olm-e2e: $(GOTESTSUM) $(OPM) $(CATALOG) ## Install, upgrade and remove the operator with the real OLM on the live node.
	@hack/olm-e2e.sh

.PHONY: bench
bench: ## Measure the operator on simulated nodes (BENCH_ARGS='-full' for 200 and 1,000 jobs).
	@hack/bench.sh

.PHONY: bench-store
bench-store: ## Measure how fast the job service's store accepts and dispatches jobs, with PostgreSQL and Redis.
	@hack/bench-store.sh

.PHONY: bench-inference
bench-inference: $(VERSITYGW) ## Measure requests and batches of the inference worker (BENCH_ARGS='--seconds 10 --rounds 5').
	@workers/pytest.sh --install
	@$${PYTHON:-/usr/bin/python3} workers/inference/bench.py $(BENCH_ARGS)

.PHONY: benchstat
benchstat: $(BENCHSTAT) ## Compare two benchmark outputs: make benchstat OLD=old.txt NEW=new.txt.
	$(BENCHSTAT) $(OLD) $(NEW)

##@ Local cluster

.PHONY: cluster-up
cluster-up: ## Start the one-node Kubernetes; the first time it is built, which takes minutes.
	@hack/cluster.sh up

.PHONY: cluster-down
cluster-down: ## Stop the one-node Kubernetes.
	@hack/cluster.sh down

.PHONY: images
images: ## Build the manager's and the worker's image without a container engine and load both into the local cluster.
	@hack/images.sh

##@ Deployment

.PHONY: install
install: ## Install the CRDs into the cluster.
	@hack/deploy.sh install

.PHONY: uninstall
uninstall: ## Remove the CRDs from the cluster, and with them every object of these kinds.
	@hack/deploy.sh uninstall

.PHONY: deploy
deploy: ## Deploy the operator (images IMG and WORKER_IMG; WEBHOOK_CERTS=self, cert-manager or none) with kustomize.
	@hack/deploy.sh apply

.PHONY: undeploy
undeploy: ## Remove the operator and the CRDs from the cluster.
	@hack/deploy.sh delete

.PHONY: docker-build
docker-build: ## Build the manager's image with Docker.
	$(DOCKER) build --build-arg VERSION=$(VERSION) -t $(IMG) .

.PHONY: docker-push
docker-push: ## Push the manager's image.
	$(DOCKER) push $(IMG)

.PHONY: docker-buildx
docker-buildx: ## Build the manager's image for PLATFORMS and push it.
	$(DOCKER) buildx build --platform=$(PLATFORMS) --build-arg VERSION=$(VERSION) --push -t $(IMG) .

.PHONY: chart-package
chart-package: $(HELM) ## Pack the Helm chart into dist/.
	$(HELM) package charts/spot-training-operator --destination dist

.PHONY: ko-image
ko-image: $(KO) ## Build the manager's image of a release for PLATFORMS with ko, with its SBOM, and push it to REGISTRY (VERSION=1.2.3).
	@mkdir -p dist
	KO_DOCKER_REPO=$(REGISTRY)/dcnlab/spot-training-operator $(KO) build --bare --platform=$(PLATFORMS) --tags=v$(VERSION) \
	  --image-label=org.opencontainers.image.source=https://github.com/dcnlab/spot-training-operator \
	  --image-label=org.opencontainers.image.licenses=Apache-2.0 --image-label=org.opencontainers.image.version=$(VERSION) \
	  --sbom=spdx . | tee dist/manager.ref

##@ Operator Lifecycle Manager

.PHONY: bundle
bundle: generate $(KUSTOMIZE) $(OPERATOR_SDK) $(CATALOG) ## Generate the OLM bundle of the version in the file VERSION into bundle/.
	@hack/bundle.sh generate

.PHONY: bundle-validate
bundle-validate: bundle ## Run all of operator-sdk's checks on the bundle; a warning fails.
	@hack/bundle.sh validate

.PHONY: bundle-build
bundle-build: ## Build the bundle's image with Docker.
	$(DOCKER) build -f bundle.Dockerfile -t $(BUNDLE_IMG) .

.PHONY: catalog
catalog: bundle-validate $(OPM) ## Make the OLM catalog of all releases into catalog/, validate it, and put it and the bundle on record.
	@hack/catalog.sh generate
	@hack/bundle.sh record

.PHONY: catalog-build
catalog-build: ## Build the catalog's image with Docker.
	$(DOCKER) build -f catalog.Dockerfile -t $(CATALOG_IMG) .

.PHONY: scorecard
scorecard: ## Run operator-sdk's scorecard with all suites against the operator in the cluster (SCORECARD_SELECTOR=suite=level1).
	@hack/scorecard.sh

# Tools, each pinned by a module in hack/tools and built when that module changes.

# build_tool PACKAGE,FLAGS,LINKER FLAGS: they are kept for all checkouts of this machine, by version (see hack/tool.sh). Those that have much
# in common with the product, operator-sdk and opm and helm and the object stores, have it in the product's versions: it is compiled once.

COMMA := ,

define build_tool
	@hack/tool.sh $@ $(<D) $(1) $(2) -ldflags '-s -w $(3)'
endef

$(CONTROLLER_GEN): hack/tools/go.mod hack/tools/go.sum
	$(call build_tool,sigs.k8s.io/controller-tools/cmd/controller-gen)

$(KUSTOMIZE): hack/tools/go.mod hack/tools/go.sum
	$(call build_tool,sigs.k8s.io/kustomize/kustomize/v5)

$(GOTESTSUM): hack/tools/go.mod hack/tools/go.sum
	$(call build_tool,gotest.tools/gotestsum)

$(BENCHSTAT): hack/tools/go.mod hack/tools/go.sum
	$(call build_tool,golang.org/x/perf/cmd/benchstat)

# These ask for other versions of common modules than the others, so each has a module of its own.
$(GOLANGCI_LINT): hack/tools/golangci-lint/go.mod hack/tools/golangci-lint/go.sum
	$(call build_tool,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

$(GOVULNCHECK): hack/tools/govulncheck/go.mod hack/tools/govulncheck/go.sum
	$(call build_tool,golang.org/x/vuln/cmd/govulncheck)

# These two are pinned by the local cluster, which needs them as well, and built as it builds them (without cgo opm also runs
# in a catalog's image). operator-sdk names itself in the bundles that it makes.
COMPONENTS := hack/localcluster/components
OPERATOR_SDK_VERSION = $(shell sed -n 's|.*operator-framework/operator-sdk \(v[^ ]*\).*|\1|p' $(COMPONENTS)/operator-sdk/go.mod)

$(OPERATOR_SDK): $(COMPONENTS)/operator-sdk/go.mod $(COMPONENTS)/operator-sdk/go.sum
	$(call build_tool,github.com/operator-framework/operator-sdk/cmd/operator-sdk,-tags containers_image_openpgp,\
	  -X github.com/operator-framework/operator-sdk/internal/version.Version=$(OPERATOR_SDK_VERSION))

$(OPM): $(COMPONENTS)/opm/go.mod $(COMPONENTS)/opm/go.sum
	$(call build_tool,github.com/operator-framework/operator-registry/cmd/opm,-tags json1$(COMMA)containers_image_openpgp)

$(CATALOG): go.mod go.sum $(shell find hack/catalog -name '*.go' -not -name '*_test.go')
	@echo "building $(notdir $@)"
	@go build -o $@ ./hack/catalog

# Kueue's manager, which a test of queued TrainingJobs runs.
$(KUEUE): hack/kueue/go.mod hack/kueue/go.sum
	$(call build_tool,sigs.k8s.io/kueue/cmd/kueue)

$(HELM): hack/tools/helm/go.mod hack/tools/helm/go.sum
	$(call build_tool,helm.sh/helm/v4/cmd/helm)

$(CRD_REF_DOCS): hack/tools/crd-ref-docs/go.mod hack/tools/crd-ref-docs/go.sum
	$(call build_tool,github.com/elastic/crd-ref-docs)

$(ACTIONLINT): hack/tools/actionlint/go.mod hack/tools/actionlint/go.sum
	$(call build_tool,github.com/rhysd/actionlint/cmd/actionlint)

$(KO): hack/tools/ko/go.mod hack/tools/ko/go.sum
	$(call build_tool,github.com/google/ko)

$(HUGO): hack/tools/hugo/go.mod hack/tools/hugo/go.sum
	$(call build_tool,github.com/gohugoio/hugo)

# The site's diagrams are drawn by it.
$(MERMAID): site/package.json site/package-lock.json
	@hack/npm.sh site mermaid

# Object stores for tests, pinned likewise; the last comes from npm.
$(VERSITYGW): hack/tools/versitygw/go.mod hack/tools/versitygw/go.sum
	$(call build_tool,github.com/versity/versitygw/cmd/versitygw)

$(FAKE_GCS_SERVER): hack/tools/fake-gcs-server/go.mod hack/tools/fake-gcs-server/go.sum
	$(call build_tool,github.com/fsouza/fake-gcs-server)

$(AZURITE): hack/tools/azurite/package.json hack/tools/azurite/package-lock.json
	@hack/npm.sh hack/tools/azurite azurite
