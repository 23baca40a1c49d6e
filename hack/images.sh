#!/usr/bin/env bash
# Builds the images of the manager and of the training worker without a container engine and loads them into the
# local cluster. Nothing is done for an image that is built and loaded already.
#
#   hack/images.sh                both, into the running local cluster
#   hack/images.sh prepare        only what needs no cluster: the manager's binary, the worker's file systems
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MANAGER_BIN=$STATE/images/manager/manager
WORKER_DIR=$STATE/images/training

build_manager_binary() {
  mkdir -p "$(dirname "$MANAGER_BIN")"
  CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o "$MANAGER_BIN" .
}

# rootfs.tar (Debian with PyTorch) and app.tar (the worker) are made again only when workers/training has changed.
build_worker_tars() (
  mkdir -p "$WORKER_DIR"
  # Another script may be at the same.
  exec 9>"$WORKER_DIR/.lock"
  flock 9
  local content
  content=$(content_of workers/training)
  if [[ -f $WORKER_DIR/rootfs.tar && -f $WORKER_DIR/app.tar && $(cat "$WORKER_DIR/.content" 2>/dev/null) == "$content" ]]; then
    return
  fi
  ensure_mmdebstrap
  rm -f "$WORKER_DIR/.content"
  workers/training/build-rootfs.sh "$WORKER_DIR"
  echo "$content" >"$WORKER_DIR/.content"
)

load_manager() {
  build_manager_binary
  load_once manager "$IMG" "$(content_of "$MANAGER_BIN")" \
    --file "$MANAGER_BIN:/manager" --user 65532:65532 --entrypoint /manager --cmd manager
}

load_worker() {
  build_worker_tars
  load_once worker "$WORKER_IMG" "$(cat "$WORKER_DIR/.content")" \
    --rootfs "$WORKER_DIR/rootfs.tar" --layer "$WORKER_DIR/app.tar" --user 1000:1000 \
    --entrypoint python3 --entrypoint -m --entrypoint training_worker
}

# load_once NAME IMAGE CONTENT FLAGS...: an image is loaded when its content is new, or the node has none of that name.
load_once() {
  local name=$1 image=$2 stamp=$STATE/images/$1.loaded loaded="$2 $3"
  shift 3
  if [[ $(cat "$stamp" 2>/dev/null) == "$loaded" ]] && node_has "$image"; then
    note "$image is on the node already"
    return
  fi
  localcluster build-image --tag "$image" "$@" --load
  echo "$loaded" >"$stamp"
}

node_has() {
  kubectl get nodes -o jsonpath='{range .items[*].status.images[*]}{.names}{"\n"}{end}' | grep -qF "$1\""
}

case ${1:-load} in
prepare)
  build_worker_tars
  build_manager_binary
  ;;
prepare-worker)
  build_worker_tars
  ;;
load)
  use_local_cluster
  load_manager
  load_worker
  ;;
*) die "usage: hack/images.sh [prepare | prepare-worker | load]" ;;
esac
