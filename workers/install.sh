#!/usr/bin/env bash
# Copies the Python packages of the pooled workers to where an image has them, beside training_worker. The Dockerfile does the same.
#
# usage: install.sh FOLDER
set -euo pipefail

if [[ $# -ne 1 ]]; then
    echo "usage: $0 FOLDER" >&2
    exit 64
fi
folder=$(realpath "$1")
readonly folder
cd "$(dirname "${BASH_SOURCE[0]}")"

for package in training/training_task pool/pool_worker inference/inference_worker simulation/simulation_worker; do
    copy=$folder/$(basename "$package")
    rm -rf "${copy:?}"
    cp -r "$package" "$folder/"
    # What is compiled is of this machine's Python. That of training_worker stays: its own build made it for the image's.
    find "$copy" -name __pycache__ -prune -exec rm -rf {} +
done
chmod -R u=rwX,go=rX "$folder"
