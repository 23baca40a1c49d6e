#!/usr/bin/env bash
# Runs the tests of the training worker with Debian's Python, PyTorch and pytest, and installs what is missing.
#
# usage: run-tests.sh [arguments of pytest]
# PYTHON names another interpreter that has torch, numpy and pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

python=${PYTHON:-/usr/bin/python3}

if ! "$python" -c 'import torch, numpy, pytest, mpi4py, xgboost' 2>/dev/null || ! command -v mpirun >/dev/null; then
    if [[ -n ${PYTHON:-} ]]; then
        echo "$PYTHON lacks torch, numpy, pytest, mpi4py or xgboost, or mpirun is not there" >&2
        exit 69
    fi
    apt-get update || echo "apt-get update complained; going on" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        python3-torch python3-numpy python3-pytest python3-mpi4py openmpi-bin python3-xgboost
fi

export PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest -p no:cacheprovider "$@"
