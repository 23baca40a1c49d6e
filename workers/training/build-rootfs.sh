#!/usr/bin/env bash
# Makes the training worker's image as two tar files, without a container engine:
#
#   OUTDIR/rootfs.tar   Debian 13 with Python, PyTorch (CPU), NumPy, Open MPI, XGBoost and boto3: large, made again only
#                       when its inputs change
#   OUTDIR/app.tar      the package training_worker and its data: small, made every time
#
# usage: build-rootfs.sh OUTDIR       (as root, on Debian or Ubuntu; needs Debian's package mirror)
#
# An image of the two layers, in this order, has this configuration:
#
#   User        1000:1000
#   WorkingDir  /tmp
#   Entrypoint  ["/usr/bin/python3", "-m", "training_worker"]
#   Env         PATH=/usr/local/bin:/usr/bin:/bin
#               PYTHONPATH=/opt/training-worker
#               PYTHONDONTWRITEBYTECODE=1
#               PYTHONUNBUFFERED=1
#               DATA_DIR=/opt/training-worker/data
#               HOME=/tmp
#               USER=trainer
#
# Nothing is written below / while it runs, except in /tmp, CHECKPOINT_DIR and /dev/termination-log.
set -euo pipefail

readonly SUITE=trixie
readonly PACKAGES=python3-torch,python3-numpy,python3-mpi4py,openmpi-bin,python3-xgboost,python3-boto3,ca-certificates
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here

main() {
    if [[ $# -ne 1 ]]; then
        echo "usage: $0 OUTDIR" >&2
        exit 64
    fi
    mkdir -p "$1"
    out=$(cd "$1" && pwd)
    work=$(mktemp -d "${TMPDIR:-/tmp}/training-rootfs.XXXXXX")
    trap 'rm -rf --one-file-system "$work"' EXIT
    build_rootfs
    build_app
    ls -l --block-size=M "$out/rootfs.tar" "$out/app.tar"
}

# The stamp names everything that the root file system is made of.
build_rootfs() {
    local stamp
    stamp=$(cat "$here/build-rootfs.sh" "$here/trim_rootfs.py" | sha256sum | cut -d' ' -f1)-$(dpkg --print-architecture)
    if [[ -s $out/rootfs.tar && $(cat "$out/rootfs.stamp" 2>/dev/null) == "$stamp" ]]; then
        echo "rootfs.tar is up to date"
        return
    fi
    install_mmdebstrap
    local root=$work/root
    mmdebstrap --quiet --variant=minbase --include="$PACKAGES" \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        "$SUITE" "$root"
    echo 'trainer:x:1000:1000:training worker:/tmp:/usr/sbin/nologin' >>"$root/etc/passwd"
    echo 'trainer:x:1000:' >>"$root/etc/group"
    rm -f "$root/etc/hostname" "$root/etc/resolv.conf"
    install -m 0644 "$here/trim_rootfs.py" "$root/tmp/trim_rootfs.py"
    chroot "$root" /usr/bin/python3 -B /tmp/trim_rootfs.py --in-chroot
    rm -f "$root/tmp/trim_rootfs.py"
    # Compiled modules with unchecked hashes: a user who may not write here still starts fast. Debian compiles its packages with
    # the times of their sources, which pack sets to 0, so that they are compiled again (-f).
    chroot "$root" /usr/bin/python3 -m compileall -q -f --invalidation-mode unchecked-hash \
        /usr/lib/python3.13 /usr/lib/python3/dist-packages >/dev/null || true
    check_rootfs "$root"
    pack "$root" "$out/rootfs.tar"
    echo "$stamp" >"$out/rootfs.stamp"
}

install_mmdebstrap() {
    if command -v mmdebstrap >/dev/null; then
        return
    fi
    apt-get update || echo "apt-get update complained; going on" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mmdebstrap
}

# The trimmed system must still train: a backward pass, a process group over gloo, and a tree; Open MPI must find its
# parts; boto3 must find the address of S3, and TLS its authorities; and compiled modules must hold whatever the times of
# their sources. PyTorch reads /proc/cpuinfo.
check_rootfs() {
    # shellcheck disable=SC2016  # $0 belongs to the inner shell
    unshare --mount sh -c 'mount -t proc proc "$0/proc" && exec chroot --userspec=1000:1000 "$0" \
        /usr/bin/env -i HOME=/tmp PATH=/usr/bin GLOO_SOCKET_IFNAME=lo /usr/bin/python3 -B -' "$1" <<'PYTHON'
import tempfile

import numpy
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

store = dist.FileStore(tempfile.mkdtemp() + "/store", 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
torch.set_num_threads(2)
for model in (
    DistributedDataParallel(torch.nn.Conv2d(1, 2, 3)),
    FullyShardedDataParallel(torch.nn.Conv2d(1, 2, 3), device_id=torch.device("cpu")),
):
    model(torch.from_numpy(numpy.ones((1, 1, 8, 8), dtype=numpy.float32))).sum().backward()
print("PyTorch", torch.__version__, "with gloo works for user 1000")

import xgboost

data = xgboost.DMatrix(numpy.arange(20.0).reshape(10, 2), label=numpy.arange(10) % 2)
xgboost.train({"objective": "binary:logistic", "nthread": 2}, data, num_boost_round=2)
print("XGBoost", xgboost.__version__, "works")

import shutil
import subprocess

import mpi4py

mpi4py.rc.initialize = False
from mpi4py import MPI

components = subprocess.run(["ompi_info", "--parsable"], capture_output=True, text=True, check=True).stdout
for component in ("btl:tcp", "btl:sm", "pml:ob1"):
    assert f"mca:{component}:" in components, f"Open MPI has lost {component}"
for program in ("mpirun", "prterun", "prted"):
    assert shutil.which(program), f"{program} is missing"
print(MPI.Get_library_version().split(",")[0], "works")

import ssl

import boto3

session = boto3.session.Session("AKIACHECK", "secret", region_name="eu-central-1")
url = session.client("s3").generate_presigned_url("get_object", {"Bucket": "models", "Key": "m.pt"})
assert ".s3." in url and "amazonaws.com/m.pt" in url, url
session.client("sts")
assert ssl.create_default_context().get_ca_certs(), "no certificate authorities are there"
print("boto3", boto3.__version__, "works")

from pathlib import Path

unchecked_hash = (1).to_bytes(4, "little")  # https://peps.python.org/pep-0552/
for folder in ("/usr/lib/python3.13", "/usr/lib/python3/dist-packages"):
    compiled = list(Path(folder).rglob("*.pyc"))
    assert compiled, f"nothing is compiled in {folder}"
    for module in compiled:
        assert module.read_bytes()[4:8] == unchecked_hash, f"{module} holds only for the time of its source"
PYTHON
    rm -rf "$1"/tmp/*
}

build_app() {
    local app=$work/app/opt/training-worker
    mkdir -p "$app/data"
    cp -r "$here/training_worker" "$app/"
    cp "$here"/data/* "$app/data/"
    find "$app" -name __pycache__ -prune -exec rm -rf {} +
    if /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null; then
        /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash -s "$work/app" "$app/training_worker"
    fi
    chmod -R u=rwX,go=rX "$work/app"
    pack "$work/app" "$out/app.tar"
}

# The same files give the same bytes; a file that would not change is left alone.
pack() {
    tar --create --file "$2.new" --directory "$1" --one-file-system --sort=name --numeric-owner \
        --mtime='@0' --format=pax --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime .
    if cmp -s "$2.new" "$2"; then
        rm "$2.new"
    else
        mv "$2.new" "$2"
    fi
}

main "$@"
