#!/usr/bin/env bash
# make test: the Python workers' tests, the tests of the local cluster and the catalog, and all Go tests that need no live node, the
# last against a real API server. A part that fails does not keep the next ones from running, but makes the whole fail. Installs the
# Debian packages that it needs. TEST_ARGS: more arguments for go test. TEST_RERUNS: how often a test that failed is run again.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

main() {
  ensure_package sshd openssh-server # joining over SSH is tested with it
  ensure_package curl curl           # tests download with it
  ensure_servers

  local failed=()

  say "training worker and pooled workers (Python)"
  workers/run-tests.sh || failed+=("workers")

  say "API server and etcd for the tests (built the first time, which takes minutes)"
  KUBEBUILDER_ASSETS=$(localcluster binaries)
  export KUBEBUILDER_ASSETS
  export HELM=$BIN/helm KUEUE=$BIN/kueue PROMETHEUS=$BIN/prometheus PROMTOOL=$BIN/promtool

  say "local cluster (Go)"
  (cd hack/localcluster && "$BIN/gotestsum" --format pkgname -- -timeout 10m ./...) || failed+=("local cluster")

  say "catalog (Go)"
  (cd hack/catalog && OPM=$BIN/opm "$BIN/gotestsum" --format pkgname -- -race -timeout 10m ./...) || failed+=("catalog")

  say "operator (Go)"
  local packages
  mapfile -t packages < <(go list ./... | grep -v -E "^$MODULE/test/(suites/e2e|bench/performance)(/|$)")
  # shellcheck disable=SC2086 # TEST_ARGS are several words
  "$BIN/gotestsum" --format pkgname "${RERUNS[@]}" --packages="${packages[*]}" -- -race -timeout 20m ${TEST_ARGS:-} || failed+=("operator")

  if ((${#failed[@]})); then
    say "failed: ${failed[*]}"
    return 1
  fi
}

main "$@"
