#!/usr/bin/env bash
# make test: the Python workers' tests, the tests of the local cluster, and all Go tests that need no live node. Parts run
# beside each other, since most tests wait for servers. A part that fails does not keep the others from running, but makes the whole
# fail. Installs the Debian packages that it needs. TEST_ARGS: more arguments for go test. TEST_RERUNS: how often a test that failed is
# run again. TEST_RACE=all: run every package with the race detector, not only those with concurrency of their own.
#
#   hack/test.sh [PART...]    all parts, or these only: workers, concurrent, others, norace, localcluster, kueue
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Packages with goroutines of their own, as extended regular expressions below the module's path.
CONCURRENT='/(controllers|internal/(queueing|child|reporting|trainingcheckpoint|containercheckpoint|checkpointbackup|nodenotice|nodejoin'
CONCURRENT+='|cloud|redact|metrics|tracing|training|olm|webhook|accessreview|jobservice|cmd)|test/suites/notice)(/|$)'
# Pure planning below them.
PURE='/(internal/queueing/scheduler|controllers/trainingjob/(build|gang|framework))(/|$)'
# Tests of concurrent packages to which the race detector adds nothing: it is in the way of budgets, and finds no more in a story that is
# told again for each point at which the manager may crash, or in a corpus of inputs, than in the tests beside them.
NORACE='^(TestBudget|TestAPINoCrash|Fuzz)'
# These need a live node, or measure.
ELSEWHERE='/test/(suites/e2e|bench)(/|$)'

main() {
  trap stop_background EXIT
  if (($#)); then
    prepare
    run_parts "$@"
    return
  fi
  ensure_package sshd openssh-server # joining over SSH is tested with it
  ensure_package curl curl           # tests download with it
  ensure_store_servers
  ensure_server prometheus prometheus # promtool with it
  workers/pytest.sh --install
  say "API server and etcd for the tests (built once on a machine, which takes minutes)"
  prepare

  say "training worker and pooled workers (Python), and packages without concurrency (Go), in the background"
  in_background workers "$0" workers
  in_background others "$0" norace others localcluster
  local failed=0
  run_parts concurrent || failed=1
  show others || failed=1
  show workers || failed=1
  return "$failed"
}

prepare() {
  KUBEBUILDER_ASSETS=$(localcluster binaries)
  export KUBEBUILDER_ASSETS
  export HELM=$BIN/helm OPM=$BIN/opm
}

run_parts() {
  local part failed=()
  for part in "$@"; do
    "test_$part" || failed+=("$part")
  done
  if ((${#failed[@]})); then
    say "failed: ${failed[*]}"
    return 1
  fi
}

test_workers() { workers/run-tests.sh; }

test_concurrent() {
  local skip=$NORACE
  if [[ ${TEST_RACE:-} == all ]]; then skip='^TestBudget'; fi
  say "operator (Go), packages with concurrency of their own: with the race detector"
  # shellcheck disable=SC2046 # a list of words
  CGO_ENABLED=1 go_tests $(concurrent_packages) -- -race -p 3 -skip "$skip"
}

test_others() {
  local packages
  packages=$(all_packages | grep -v -x -F "$(concurrent_packages)") || return 0
  say "operator (Go), other packages"
  # shellcheck disable=SC2086 # a list of words
  go_tests $packages -- -p 2
}

test_norace() {
  say "budgets, crash stories and corpora of concurrent packages, without the race detector (Go)"
  # shellcheck disable=SC2046 # a list of words
  go_tests $(with_norace | grep -x -F "$(concurrent_packages)") -- -p 2 -run "$NORACE"
}

test_localcluster() (
  say "local cluster (Go)"
  cd hack/localcluster
  go_tests ./... --
)

# Kueue takes minutes to build, so that this is no part of all.
test_kueue() {
  say "queued TrainingJobs with the released Kueue (Go)"
  KUEUE=$BIN/kueue go_tests ./controllers/trainingjob -- -tags kueue -run '^TestAPIKueue'
}

all_packages() { go list ./... | grep -v -E "$ELSEWHERE"; }

concurrent_packages() {
  if [[ ${TEST_RACE:-} == all ]]; then
    all_packages
  else
    all_packages | grep -E "$CONCURRENT" | grep -v -E "$PURE"
  fi
}

# with_norace: the packages that have such tests.
with_norace() {
  grep -rlE --include='*_test.go' "^func ${NORACE#^}" controllers internal | xargs -n1 dirname | sort -u | sed "s|^|$MODULE/|"
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
