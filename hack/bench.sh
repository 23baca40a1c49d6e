#!/usr/bin/env bash
# make bench: measures the operator on simulated nodes (test/bench/performance) with the local cluster's programs.
# BENCH_ARGS: arguments of test/bench/performance, for example "-full -doc docs/performance.md".
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

say "control-plane programs (built the first time, which takes minutes)"
KUBEBUILDER_ASSETS=$(localcluster binaries)
export KUBEBUILDER_ASSETS
# kwok plays the nodes; a plain test API server needs none, so it is not among the programs above.
if [[ ! -x $KUBEBUILDER_ASSETS/kwok ]]; then
  go build -C hack/localcluster/components/kwok -o "$KUBEBUILDER_ASSETS/kwok" sigs.k8s.io/kwok/cmd/kwok
fi

say "measuring"
# shellcheck disable=SC2086 # BENCH_ARGS are several words
exec go test -run '^$' -bench . -benchtime 1x -timeout 0 ./test/bench/performance -args ${BENCH_ARGS:-}
