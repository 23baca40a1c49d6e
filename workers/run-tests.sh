#!/usr/bin/env bash
# Runs the tests of the pooled workers and, without arguments, those of the training worker beside them (see pytest.sh).
#
# usage: run-tests.sh [arguments of pytest, for the tests of the pooled workers]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if [[ $# -gt 0 ]]; then
    exec ./pytest.sh -c pool/pyproject.toml pool/tests "$@"
fi
./pytest.sh --install
output=$(mktemp)
trap 'rm -f "$output"' EXIT
./pytest.sh -c pool/pyproject.toml pool/tests >"$output" 2>&1 &
pool=$!
failed=0
training/run-tests.sh || failed=1
wait "$pool" || failed=1
cat "$output"
exit "$failed"
