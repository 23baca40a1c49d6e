# shellcheck shell=bash
# shellcheck disable=SC2034 # the scripts use what is set here
# What the scripts in hack/ share. Source it: it sets strict mode and changes to the repository's top folder.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

BIN=${BIN:-$ROOT/.bin}
STATE=${LOCALCLUSTER_STATE:-$ROOT/.localcluster}
LOG_DIR=$STATE/logs
IMG=${IMG:-spot-training-operator:dev}
WORKER_IMG=${WORKER_IMG:-spot-training-operator-worker:dev}
VERSION=${VERSION:-dev}
REGISTRY=${REGISTRY:-registry.example.com}
NAMESPACE=spot-training-operator-system
DEPLOYMENT=spot-training-operator-controller-manager
JOB_SERVICE=spot-training-operator-job-service
MODULE=github.com/dcnlab/spot-training-operator

# Binaries carry VERSION; a checkout that belongs to another user must not stop the build. What one checkout has compiled serves
# all others of this machine, which only paths in it would hinder. Without what debuggers need it is compiled in less time.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false -trimpath -gcflags=all=-dwarf=false"
# Nothing here needs cgo but the race detector: tools, linters, tests and the manager then share what is compiled.
export CGO_ENABLED=0

# What is built from pinned versions is kept here, for all checkouts of this machine.
CACHE=${XDG_CACHE_HOME:-${HOME:-$ROOT}/.cache}/spot-training-operator

# The cluster of KUBECONFIG, when the caller named one; the local cluster otherwise.
USER_CLUSTER=${KUBECONFIG:-}

# gotestsum's flags for TEST_RERUNS. It names each test that it ran again; data races and more than a few failures stay failures.
RERUNS=()
if [[ -n ${TEST_RERUNS:-} ]]; then
  RERUNS=(--rerun-fails="$TEST_RERUNS" --rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race --rerun-fails-run-root-test)
fi

# One clock for a script and the scripts that it calls.
export BEGAN_AT="${BEGAN_AT:-$EPOCHSECONDS}"
SECONDS=$((EPOCHSECONDS - BEGAN_AT))

# programs_folder: the folder of the local cluster's programs, one for each set of pinned versions; .localcluster/bin is a link to it.
programs_folder() {
  local link=$ROOT/.localcluster/bin folder
  folder=$CACHE/localcluster/$({
    find hack/localcluster/components -type f -print0 | LC_ALL=C sort -z | xargs -0 cat
    go env GOVERSION
  } | sha256sum | cut -c1-16)
  mkdir -p "$CACHE/localcluster" "$ROOT/.localcluster"
  if [[ -d $link && ! -L $link ]]; then mv --no-target-directory "$link" "$folder" 2>/dev/null || rm -rf "$link"; fi
  mkdir -p "$folder"
  ln -sfn "$folder" "$link"
  echo "$folder"
}
export LOCALCLUSTER_BIN="${LOCALCLUSTER_BIN:-$(programs_folder)}"
PROGRAMS=$LOCALCLUSTER_BIN

say() { printf '==> [%4ds] %s\n' "$SECONDS" "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# localcluster ARGS...: the command of hack/localcluster; go's cache makes the build a matter of a second.
localcluster() {
  if [[ ! -x $BIN/localcluster ]]; then
    say "building the localcluster command (it downloads its Go modules first)" >&2
  fi
  # One line for each of hundreds of modules would bury the rest.
  go build -C hack/localcluster -o "$BIN/localcluster" . 2> >(grep -v '^go: downloading ' >&2)
  "$BIN/localcluster" "$@"
}

# tag IMAGE FLAGS...: the name to build an image of a release under. One that is pushed leaves out REGISTRY, so that the
# local registry has it where a node looks that takes this registry for REGISTRY.
tag() {
  local image=$1
  shift
  if [[ " $* " == *" --push "* ]]; then image=${image#"$REGISTRY/"}; fi
  echo "$image"
}

# image_patches FOLDER MANAGER WORKER [BUILD]: writes the patches of a kustomization that name the images, manager.yaml and
# job-service.yaml: the job service is in the manager's image too. Another BUILD under the same name starts new pods.
image_patches() {
  local folder=$1 manager=$2 worker=$3 build=${4:-}
  {
    deployment_patch "$DEPLOYMENT" manager "$manager" "$build"
    cat <<EOF
        env:
        - name: RELATED_IMAGE_TRAINING_WORKER
          value: $worker
        - name: RELATED_IMAGE_CHECKPOINT_AGENT
          value: $manager
        - name: RELATED_IMAGE_NODE_AGENT
          value: $manager
EOF
  } >"$folder/manager.yaml"
  deployment_patch "$JOB_SERVICE" job-service "$manager" "$build" >"$folder/job-service.yaml"
}

# deployment_patch NAME CONTAINER IMAGE BUILD
deployment_patch() {
  cat <<EOF
apiVersion: apps/v1
kind: Deployment
metadata:
  name: $1
  namespace: $NAMESPACE
spec:
  template:
$(if [[ -n $4 ]]; then printf '    metadata:\n      annotations:\n        ml.example.com/manager-build: "%s"\n' "$4"; fi)
    spec:
      containers:
      - name: $2
        image: $3
EOF
}

# with_heartbeat NAME COMMAND...: says every 20 seconds that the command is still running, and for how long.
with_heartbeat() {
  local name=$1 begin=$SECONDS pulse code=0
  shift
  # read waits like sleep, but leaves no process behind that keeps the output open.
  (
    exec {never}<> <(:)
    while true; do
      read -r -t 20 -u "$never" || true
      say "$name: $((SECONDS - begin)) s so far" >&2
    done
  ) &
  pulse=$!
  "$@" || code=$?
  kill "$pulse" 2>/dev/null
  wait "$pulse" 2>/dev/null || true
  return "$code"
}

cluster_is_up() { localcluster status >/dev/null 2>&1; }

use_local_cluster() {
  KUBECONFIG=$(localcluster kubeconfig)
  export KUBECONFIG
  export PATH="$PROGRAMS:$PATH"
}

# Also needed with a cluster of the user's own, where kubectl may be missing on this machine.
need_kubectl() {
  if command -v kubectl >/dev/null; then return; fi
  if [[ ! -x $PROGRAMS/kubectl ]]; then
    say "kubectl is not installed: building it (minutes the first time)"
    localcluster binaries >/dev/null
  fi
  export PATH="$PATH:$PROGRAMS"
}

# in_background NAME COMMAND...: runs it with its output in a log; finish NAME waits for it, and shows the log's end
# when it failed. Each is a process group of its own, so that all of it can be ended.
declare -A JOBS=()
in_background() {
  local name=$1
  shift
  mkdir -p "$LOG_DIR"
  setsid "$@" >"$LOG_DIR/$name.log" 2>&1 </dev/null &
  JOBS[$name]=$!
}

finish() {
  local name=$1 pid=${JOBS[$1]}
  unset "JOBS[$name]"
  if wait "$pid"; then return; fi
  tail -n 40 "$LOG_DIR/$name.log" >&2
  die "$name failed; all of its output is in ${LOG_DIR#"$ROOT"/}/$name.log"
}

# show NAME: waits for it, and prints its output; fails when it failed.
show() {
  local name=$1 pid=${JOBS[$1]} code=0
  unset "JOBS[$name]"
  wait "$pid" || code=$?
  say "output of $name"
  cat "$LOG_DIR/$name.log"
  return "$code"
}

# For an EXIT trap: what still runs in the background ends with the script.
stop_background() {
  local pid
  for pid in "${JOBS[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
}

# content_of PATH...: one hash over the files below the paths, to see whether something must be built again.
content_of() {
  find "$@" -type f -not -path '*/__pycache__/*' -not -path '*/tests/*' -print0 |
    LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16
}

is_installed() { command -v "$1" >/dev/null || [[ -x /usr/sbin/$1 ]]; }

# ensure_package COMMAND PACKAGE...: installs Debian packages when there is no such command. Another script may be at it at the same
# time; apt-get then waits for it.
ensure_package() {
  local command=$1
  shift
  if is_installed "$command"; then return; fi
  note "installing the Debian packages $*" >&2
  apt-get update -qq -o DPkg::Lock::Timeout=300 || note "apt-get update complained; going on with the package lists at hand" >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends "$@" >/dev/null
}

# Root file systems for images are made with it. The scripts call this before they start anything in parallel.
ensure_mmdebstrap() { ensure_package mmdebstrap mmdebstrap; }

# ensure_server COMMAND PACKAGE: ensure_package of a server that tests start by themselves. Debian starts a service as it installs one:
# policy-rc.d forbids that for the time of the installation, unless the machine has a policy of its own.
ensure_server() (
  if is_installed "$1"; then return; fi
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
  fi
  ensure_package "$@"
)

# The servers of the job service's store.
ensure_store_servers() {
  ensure_server pg_ctlcluster postgresql
  ensure_server redis-server redis-server
}
