#!/usr/bin/env bash
# make test: the Python workers' tests, the tests of the local cluster, and all Go tests that need no live node. Parts run
# beside each other, since most tests wait for servers. A part that fails does not keep the others from running, but makes the whole
# fail. Installs the Debian packages that it needs. TEST_ARGS: more arguments for go test. TEST_RERUNS: how often a test that failed is
# run again. TEST_RACE=all: run every package with the race detector, not only those with concurrency of their own.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Packages with goroutines of their own, as extended regular expressions below the module's path.
CONCURRENT='/(controllers|internal/(queueing|child|reporting|trainingcheckpoint|containercheckpoint|checkpointbackup|nodenotice|nodejoin'
CONCURRENT+='|cloud|redact|metrics|tracing|training|olm|webhook|accessreview|jobservice|cmd)|test/suites/notice)(/|$)'
# Pure planning below them.
PURE='/(internal/queueing/scheduler|controllers/trainingjob/(build|gang|framework))(/|$)'
# These need a live node, or measure.
ELSEWHERE='/test/(suites/e2e|bench)(/|$)'

FAILED=()

main() {
  trap stop_background EXIT
  ensure_package sshd openssh-server # joining over SSH is tested with it
  ensure_package curl curl           # tests download with it
  ensure_servers
  workers/pytest.sh --install

  say "API server and etcd for the tests (built once on a machine, which takes minutes)"
  KUBEBUILDER_ASSETS=$(localcluster binaries)
  export KUBEBUILDER_ASSETS
  export HELM=$BIN/helm KUEUE=$BIN/kueue PROMETHEUS=$BIN/prometheus PROMTOOL=$BIN/promtool OPM=$BIN/opm

  local all concurrent others
  all=$(go list ./... | grep -v -E "$ELSEWHERE")
  concurrent=$(grep -E "$CONCURRENT" <<<"$all" | grep -v -E "$PURE")
  others=$(grep -v -x -F "$concurrent" <<<"$all")
  if [[ ${TEST_RACE:-} == all ]]; then concurrent=$all others=; fi

  say "training worker and pooled workers (Python), beside the Go tests"
  in_background workers workers/run-tests.sh
  say "operator (Go), packages with concurrency of their own: with the race detector"
  # shellcheck disable=SC2086 # lists of words
  go_tests $concurrent -- -race -p 3 -skip '^TestBudget' || FAILED+=("packages with concurrency")
  say "operator (Go), other packages"
  # shellcheck disable=SC2086 # lists of words
  if [[ -n $others ]]; then go_tests $others -- -p 3 || FAILED+=("other packages"); fi
  say "budgets of what concurrent packages cost, for which the race detector is in the way (Go)"
  # shellcheck disable=SC2046 # a list of words
  go_tests $(grep -x -F "$concurrent" <<<"$(with_budgets)") -- -run '^TestBudget' || FAILED+=("budgets")
  say "local cluster (Go)"
  (cd hack/localcluster && go_tests ./... --) || FAILED+=("local cluster")
  show workers || FAILED+=("workers")

  if ((${#FAILED[@]})); then
    say "failed: ${FAILED[*]}"
    return 1
  fi
}

# with_budgets: the packages that have tests of budgets.
with_budgets() {
  grep -rl --include='*_test.go' '^func TestBudget' controllers internal | xargs -n1 dirname | sort -u | sed "s|^|$MODULE/|"
}

# go_tests PACKAGE... -- ARGUMENTS of go test...: vet is a part of make lint; linking is faster without what debuggers need.
go_tests() {
  local packages=()
  while [[ $1 != -- ]]; do
    packages+=("$1")
    shift
  done
  shift
  # shellcheck disable=SC2086 # TEST_ARGS are several words
  "$BIN/gotestsum" --format pkgname "${RERUNS[@]}" --packages="${packages[*]}" -- \
    -vet=off -ldflags=-w -count=1 -parallel 6 -timeout 20m "$@" ${TEST_ARGS:-}
}

main "$@"
