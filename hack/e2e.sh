#!/usr/bin/env bash
# make e2e: the tests of test/suites/e2e on the live node, which is started if it is not up and then stopped again; or on the
# cluster of KUBECONFIG, which must be able to pull IMG and WORKER_IMG. E2E_ARGS: more arguments for go test. TEST_RERUNS: how
# often a test that failed is run again. E2E_MACHINES=yes: run also the tests that add machines to the node, which join it as
# instances do (make spot-e2e). E2E_DRILL=yes: run also the test that destroys the node and starts another (make dr-e2e).
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STARTED_NODE=

main() {
  trap cleanup EXIT
  if [[ -z $USER_CLUSTER ]]; then
    # Running containers can be checkpointed where containerd finds it.
    localcluster criu >/dev/null
    bring_node_up
    hack/images.sh load
    if [[ -n ${E2E_MACHINES:-} ]]; then export LOCALCLUSTER=$BIN/localcluster; fi
    export E2E_REGISTRY=${E2E_REGISTRY:-10.77.0.1:5000} E2E_KUBELET_DIR=${E2E_KUBELET_DIR:-$STATE/data/kubelet}
  else
    need_kubectl
  fi
  if [[ -n ${E2E_DRILL:-} ]]; then ensure_package jq jq; fi
  ensure_store_servers # those of a job service of several replicas
  DEPLOY_COMPONENTS="job-service local" hack/deploy.sh apply
  # Training scripts of others, which the tests run as they are.
  TRAINING_EXAMPLES=$(cd hack/training-examples && go mod download -json github.com/kubeflow/training-operator | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
  export TRAINING_EXAMPLES
  say "end-to-end tests"
  # shellcheck disable=SC2086 # E2E_ARGS are several words
  IMG=$IMG WORKER_IMG=$WORKER_IMG "$BIN/gotestsum" --format testname "${RERUNS[@]}" --packages=./test/suites/e2e/... -- \
    -tags e2e -count=1 -parallel 6 -timeout 30m ${E2E_ARGS:-}
}

bring_node_up() {
  if ! cluster_is_up; then
    say "starting the node"
    STARTED_NODE=yes
    localcluster up
  fi
  use_local_cluster
}

# Quiet, so that the tests' summary is the last thing to be read.
cleanup() {
  stop_background
  if [[ -n $STARTED_NODE ]]; then
    mkdir -p "$LOG_DIR"
    localcluster down >"$LOG_DIR/e2e-down.log" 2>&1 || note "stopping the node failed: see ${LOG_DIR#"$ROOT"/}/e2e-down.log" >&2
  fi
}

main "$@"
