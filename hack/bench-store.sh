#!/usr/bin/env bash
# make bench-store: how many jobs a second the job service's store accepts, and how long a waiting worker waits for one. BENCH_SECONDS:
# length of a round.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ensure_store_servers
go test -run '^$' -bench . -benchtime 1x -timeout 30m ./internal/jobservice/engine
