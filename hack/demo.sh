#!/usr/bin/env bash
# make demo: a real one-node Kubernetes, the operator deployed in it, and a TrainingJob of two workers until it is
# Completed. With KUBECONFIG set that cluster is used, and it must be able to pull IMG and WORKER_IMG.
# DEMO_ARGS: arguments for hack/demo.
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
  # shellcheck disable=SC2086 # DEMO_ARGS are several words
  "$BIN/demo" ${DEMO_ARGS:-}
  print_next_steps
}

prepare_user_cluster() {
  say "using the cluster of KUBECONFIG ($USER_CLUSTER)"
  note "It pulls these images itself, so they must be in a registry that it can reach:"
  note "  IMG=$IMG"
  note "  WORKER_IMG=$WORKER_IMG"
  need_kubectl
  kubectl version >/dev/null || die "the cluster of KUBECONFIG does not answer"
  go build -o "$BIN/demo" ./hack/demo
}

# Programs are built one after another, those that are needed first before the others. The worker's file system comes over
# the network meanwhile.
prepare_local_cluster() {
  ((EUID == 0)) || die "a node whose pods really run needs root: run this with sudo, or set KUBECONFIG to a cluster that you have"
  if [[ ! -x $PROGRAMS/kubectl ]]; then
    say "first run: Kubernetes, containerd and the images are built from source, about 20 minutes on 2 cores"
  fi
  ensure_mmdebstrap
  in_background worker-image hack/images.sh prepare-worker
  say "[1/4] starting the node"
  localcluster up
  use_local_cluster
  say "[2/4] building the manager, usually 3m the first time"
  in_background manager-image hack/images.sh prepare-manager
  await manager-image "[2/4] manager"
  say "[3/4] building the demo's program, usually 1m the first time"
  in_background demo-program go build -o "$BIN/demo" ./hack/demo
  await demo-program "[3/4] demo"
  say "[4/4] the worker's image: file system with PyTorch, usually 10m from the start the first time"
  await worker-image "[4/4] worker's image"
  say "loading the images into the node"
  hack/images.sh load
}

# await NAME WHAT: finish NAME, with a line every 20 seconds.
await() {
  with_heartbeat "$2" wait "${JOBS[$1]}" || true
  finish "$1"
}

print_next_steps() {
  say "done; everything is still running"
  if [[ -z $USER_CLUSTER ]]; then
    note "Look at it:"
    note "  export KUBECONFIG=$KUBECONFIG PATH=$PROGRAMS:\$PATH"
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
