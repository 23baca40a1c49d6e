#!/usr/bin/env bash
# Builds the images of the manager and of the training worker without a container engine and loads them into the
# local cluster. Nothing is done for an image that is built and loaded already.
#
#   hack/images.sh                both, into the running local cluster
#   hack/images.sh prepare        only what needs no cluster: the layers of both; prepare-worker: those of the worker
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MANAGER_DIR=$STATE/images/manager
WORKER_DIR=$STATE/images/training

# The manager's image is this one layer on nothing: a static binary, the certificate authorities, a user that is not root.
build_manager_tar() {
  local root=$MANAGER_DIR/root
  mkdir -p "$root/etc/ssl/certs" "$root/tmp"
  chmod 1777 "$root/tmp"
  CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o "$root/manager" .
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  echo 'nonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin' >"$root/etc/passwd"
  echo 'nonroot:x:65532:' >"$root/etc/group"
  # The same files give the same bytes.
  tar --create --file "$MANAGER_DIR/manager.tar" --directory "$root" --sort=name --mtime=@0 --numeric-owner \
    --owner=0 --group=0 .
}

# rootfs.tar (Debian with PyTorch) is made again only when its recipe has changed, app.tar (the worker) every time.
build_worker_tars() (
  mkdir -p "$WORKER_DIR"
  # Another script may be at the same.
  exec 9>"$WORKER_DIR/.lock"
  flock 9
  ensure_mmdebstrap
  workers/training/build-rootfs.sh "$WORKER_DIR"
)

load_manager() {
  build_manager_tar
  load_once manager "$IMG" "$(content_of "$MANAGER_DIR/manager.tar")" \
    --layer "$MANAGER_DIR/manager.tar" --user 65532:65532 --entrypoint /manager --cmd manager
}

load_worker() {
  build_worker_tars
  load_once worker "$WORKER_IMG" "$(content_of "$WORKER_DIR/rootfs.stamp" "$WORKER_DIR/app.tar")" \
    --rootfs "$WORKER_DIR/rootfs.tar" --layer "$WORKER_DIR/app.tar" --user 1000:1000 --workdir /tmp \
    --entrypoint /usr/bin/python3 --entrypoint -m --entrypoint training_worker \
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
  localcluster build-image --tag "$image" "$@" --load
  echo "$loaded" >"$stamp"
}

node_has() {
  local names
  names=$(kubectl get nodes -o jsonpath='{.items[*].status.images[*].names}')
  [[ $names == *"/$1\""* || $names == *"\"$1\""* ]]
}

case ${1:-load} in
prepare)
  build_worker_tars
  build_manager_tar
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
