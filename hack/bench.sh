#!/usr/bin/env bash
# make bench: the benchmarks of test/performance, against control-plane binaries of the local cluster.
# BENCH_ARGS: more arguments for go test, for example "-run 200Jobs".
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

say "control-plane binaries (built the first time, which takes minutes)"
localcluster binaries >/dev/null
KUBEBUILDER_ASSETS=$(localcluster binaries | tail -n 1)
export KUBEBUILDER_ASSETS PATH="$STATE/bin:$PATH"

say "benchmarks"
# shellcheck disable=SC2086 # BENCH_ARGS are several words
exec go test -tags performance -v -count=1 -timeout 60m -bench . ${BENCH_ARGS:-} ./test/performance/...
