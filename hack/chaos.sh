#!/usr/bin/env bash
# make chaos, make fuzz and make soak: the random workloads of test/suites/chaos, in full.
# CHAOS_SEEDS: how many, or which (17,18). CHAOS_WORLDS: how many clusters at once. CHAOS_CLOCK: none, and the manager's clock does not jump,
# for which all is compiled once more. FUZZ_OBJECTS, FUZZ_SEED, FUZZ_FIRST: how many objects, and which.
# SOAK_MINUTES: how long.
#
#   hack/chaos.sh chaos|fuzz|soak
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

KUBEBUILDER_ASSETS=$(localcluster binaries)
export KUBEBUILDER_ASSETS
case ${1:-} in
  chaos)
    export CHAOS_SEEDS=${CHAOS_SEEDS:-500} CHAOS_WORLDS=${CHAOS_WORLDS:-4} CHAOS_CLOCK=${CHAOS_CLOCK:-jumps}
    exec go test -count=1 -timeout 0 -v -parallel "$CHAOS_WORLDS" -run TestWhateverHappens ./test/suites/chaos
    ;;
  fuzz)
    export FUZZ_OBJECTS=${FUZZ_OBJECTS:-10000}
    exec go test -count=1 -timeout 0 -v -run TestEachObject ./test/suites/chaos
    ;;
  soak)
    export SOAK_MINUTES=${SOAK_MINUTES:-120}
    exec go test -count=1 -timeout 0 -v -run TestNothingGrows ./test/suites/chaos
    ;;
  *)
    echo "usage: hack/chaos.sh chaos|fuzz|soak" >&2
    exit 64
    ;;
esac
