#!/usr/bin/env bash
# make demo: a real one-node Kubernetes, the operator deployed in it, and a TrainingJob of two workers until it is
# Completed. With KUBECONFIG set that cluster is used, and it must be able to pull IMG and WORKER_IMG.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

main() {
  trap stop_background EXIT
  if [[ -n $USER_CLUSTER ]]; then
    prepare_user_cluster
  else
    prepare_local_cluster
  fi
  DEPLOY_COMPONENTS=local hack/deploy.sh apply
  say "training"
  "$BIN/demo"
  farewell
}

prepare_user_cluster() {
  say "using the cluster of KUBECONFIG ($USER_CLUSTER)"
  note "It pulls these images itself, so they must be in a registry that it can reach:"
  note "  IMG=$IMG"
  note "  WORKER_IMG=$WORKER_IMG"
  need_kubectl
  kubectl version >/dev/null || die "the cluster of KUBECONFIG does not answer"
  build_demo
}

# The worker's file system comes over the network while the processor compiles; the rest waits for neither.
prepare_local_cluster() {
  local first=
  [[ -x $STATE/bin/kubectl ]] || first=yes
  if [[ -n $first ]]; then
    say "first run: Kubernetes, containerd and the images are built from source, about 20 minutes on 2 cores"
  fi
  ensure_mmdebstrap
  in_background worker-image hack/images.sh prepare-worker
  say "starting the node"
  localcluster up
  use_local_cluster
  say "building the manager"
  build_demo
  if [[ -n $first ]]; then say "waiting for the worker's file system (log: .localcluster/logs/worker-image.log)"; fi
  finish worker-image
  say "building the images and loading them into the node"
  hack/images.sh load
}

build_demo() { go build -o "$BIN/demo" ./hack/demo; }

farewell() {
  say "done; everything is still running"
  if [[ -z $USER_CLUSTER ]]; then
    note "Look at it:"
    note "  export KUBECONFIG=$KUBECONFIG PATH=$STATE/bin:\$PATH"
  else
    note "Look at it:"
  fi
  note "  kubectl get trainingjobs,pods,pvc -A"
  note "  kubectl -n $NAMESPACE logs deployment/$DEPLOYMENT"
  if [[ -z $USER_CLUSTER ]]; then
    note "Stop it:"
    note "  make cluster-down"
  else
    note "Remove the operator, its CRDs and all jobs:"
    note "  make undeploy"
  fi
}

main "$@"
