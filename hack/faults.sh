#!/usr/bin/env bash
# make faults: the fault tests of the job service, and of replicas of its store, in full. FAULT_JOBS: how many jobs in each.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ensure_servers
export FAULT_JOBS=${FAULT_JOBS:-100000}
go test -count=1 -timeout 60m -v -run TestNothingThatWasAcknowledged ./test/faults
go test -count=1 -timeout 60m -v -run TestEachAcknowledgedJob ./test/replicas
