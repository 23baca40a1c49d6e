#!/usr/bin/env bash
# Runs the tests of the pooled workers and of the training worker (see pytest.sh).
#
# usage: run-tests.sh [arguments of pytest, for the tests of the pooled workers]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if [[ $# -eq 0 ]]; then
    training/run-tests.sh
fi
exec ./pytest.sh -c pool/pyproject.toml pool/tests "$@"
