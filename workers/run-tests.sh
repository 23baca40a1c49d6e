#!/usr/bin/env bash
# Runs the tests of the pooled workers and of the training worker with Debian's Python, and installs what is missing.
#
# usage: run-tests.sh [arguments of pytest, for the tests of the pooled workers]
# PYTHON names another interpreter that has torch, numpy, xgboost, mpi4py and pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if [[ $# -eq 0 ]]; then
    training/run-tests.sh
fi
export PYTHONDONTWRITEBYTECODE=1
exec "${PYTHON:-/usr/bin/python3}" -m pytest -p no:cacheprovider -c pool/pyproject.toml pool/tests "$@"
