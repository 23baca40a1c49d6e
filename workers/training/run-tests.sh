#!/usr/bin/env bash
# Runs the tests of the training worker (see ../pytest.sh).
#
# usage: run-tests.sh [arguments of pytest]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec ../pytest.sh "$@"
