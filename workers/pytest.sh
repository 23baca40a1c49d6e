#!/usr/bin/env bash
# Runs pytest with Debian's Python and what the workers need, and installs what is missing.
#
# usage: pytest.sh --install             only install what is missing
#        pytest.sh [arguments of pytest]
# PYTHON names another interpreter that has torch, numpy, xgboost, mpi4py, boto3 and pytest.
# TEST_RERUNS: how often a test that failed is run again, by pytest-rerunfailures. It names each such test.
set -euo pipefail

python=${PYTHON:-/usr/bin/python3}
modules=(torch numpy pytest mpi4py xgboost boto3)
packages=(python3-torch python3-numpy python3-pytest python3-mpi4py openmpi-bin python3-xgboost python3-boto3)
options=(-p no:cacheprovider)
if [[ -n ${TEST_RERUNS:-} ]]; then
    modules+=(pytest_rerunfailures)
    packages+=(python3-pytest-rerunfailures)
    options+=(--reruns "$TEST_RERUNS" -r fER)
fi

# Looks for the modules without loading them, which takes seconds.
find='import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))'
if ! "$python" -c "$find" "${modules[@]}" || ! command -v mpirun >/dev/null; then
    if [[ -n ${PYTHON:-} ]]; then
        echo "$PYTHON lacks one of ${modules[*]}, or mpirun is not there" >&2
        exit 69
    fi
    apt-get update -o DPkg::Lock::Timeout=300 || echo "apt-get update complained; going on" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -o DPkg::Lock::Timeout=300 --no-install-recommends "${packages[@]}"
fi

if [[ ${1:-} == --install ]]; then exit; fi

export PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest "${options[@]}" "$@"
