#!/usr/bin/env bash
# Builds the images of the manager and of the training worker without a container engine and loads them into the
# local cluster. Nothing is done for an image that is built and loaded already.
#
#   hack/images.sh                   both, into the running local cluster
#   hack/images.sh prepare-manager   only what needs no cluster: the manager's binary
#   hack/images.sh prepare-worker    the same for the worker: its file system
#   hack/images.sh manager FLAGS...  the manager's image; FLAGS say where it goes: --output FILE, --load, --push (see hack/localcluster)
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What lies in an image must be readable to its user.
umask 022

MANAGER=$STATE/images/manager/manager
WORKER_DIR=$STATE/images/training
# One for all checkouts of this machine: it takes minutes.
DEBIAN_DIR=$CACHE/worker-image

prepare_manager() {
  mkdir -p "$(dirname "$MANAGER")"
  go build -trimpath -tags disable_grpc_modules,grpcnotrace -ldflags "-s -w -X main.version=$VERSION" -o "$MANAGER" .
}

# rootfs.tar (Debian with PyTorch) is made again only when its recipe has changed, app (the worker) every time.
prepare_worker() (
  mkdir -p "$WORKER_DIR" "$DEBIAN_DIR"
  # Another script may be at the same.
  exec 9>"$DEBIAN_DIR/.lock"
  flock 9
  ensure_mmdebstrap
  workers/training/build-rootfs.sh "$DEBIAN_DIR"
  rm -rf "$WORKER_DIR/app"
  mkdir "$WORKER_DIR/app"
  tar --extract --file "$DEBIAN_DIR/app.tar" --directory "$WORKER_DIR/app"
  workers/install.sh "$WORKER_DIR/app/opt/training-worker"
)

# The same contents as the Dockerfile's: a static binary, the certificate authorities, a user that is not root.
MANAGER_FLAGS=(
  --file "$MANAGER:/usr/local/bin/spot-training-operator:0755" --passwd-nonroot --with-ca-certificates --user 65532:65532
  --env PATH=/usr/local/bin --entrypoint /usr/local/bin/spot-training-operator --cmd manager
)

load_manager() { load_once manager "$IMG" "$(content_of "$MANAGER")" "${MANAGER_FLAGS[@]}"; }

# Configured as workers/training/build-rootfs.sh says.
load_worker() {
  local programs=(workers/training/tensorboard workers/training/training-worker.pth)
  load_once worker "$WORKER_IMG" "$(content_of "$DEBIAN_DIR/rootfs.stamp" "$WORKER_DIR/app" "${programs[@]}")" \
    --rootfs "$DEBIAN_DIR/rootfs.tar" --file "$WORKER_DIR/app/opt/training-worker:/opt/training-worker" \
    --file workers/training/tensorboard:/usr/local/bin/tensorboard:0755 \
    --file workers/training/training-worker.pth:/usr/lib/python3/dist-packages/training-worker.pth:0644 \
    --user 1000:1000 --workdir /tmp --entrypoint '["/usr/bin/python3", "-m", "training_worker"]' \
    --env PATH=/usr/local/bin:/usr/bin:/bin --env PYTHONPATH=/opt/training-worker \
    --env PYTHONDONTWRITEBYTECODE=1 --env PYTHONUNBUFFERED=1 \
    --env DATA_DIR=/opt/training-worker/data --env HOME=/tmp --env USER=trainer
}

# load_once NAME IMAGE CONTENT FLAGS...: an image is loaded when its content is new, or the node has none of that name.
load_once() {
  local name=$1 image=$2 stamp=$STATE/images/$1.loaded loaded="$2 $3"
  shift 3
  if [[ $(cat "$stamp" 2>/dev/null) == "$loaded" ]] && node_has "$image"; then
    note "$image is on the node already"
    return
  fi
  localcluster build-image --tag "$image" "$@" --load | sed 's/^/    /'
  echo "$loaded" >"$stamp"
}

# The kubelet's own list in the node's status is up to a minute behind, so containerd is asked.
node_has() {
  local names
  names=$("$PROGRAMS/ctr" --address "$STATE/run/containerd.sock" --namespace k8s.io images ls --quiet 2>/dev/null || true)
  grep -qE "(^|/)${1//./\\.}\$" <<<"$names"
}

case ${1:-load} in
prepare-manager) prepare_manager ;;
prepare-worker) prepare_worker ;;
manager)
  prepare_manager
  localcluster build-image --tag "$IMG" "${MANAGER_FLAGS[@]}" "${@:2}"
  ;;
load)
  use_local_cluster
  prepare_manager
  load_manager
  prepare_worker | sed 's/^/    /'
  load_worker
  ;;
*) die "usage: hack/images.sh [prepare-manager | prepare-worker | manager FLAGS... | load]" ;;
esac
