#!/usr/bin/env bash
# make faults: the fault test of the job service in full. FAULT_JOBS: how many jobs.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ensure_store_servers
FAULT_JOBS=${FAULT_JOBS:-100000} go test -count=1 -timeout 60m -v -run TestNothingThatWasAcknowledged ./test/suites/faults
