#!/usr/bin/env bash
# make run: the manager as a process on this machine, without leader election, against the cluster of KUBECONFIG or
# the local one. RUN_ARGS: more flags for the manager.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ -z $USER_CLUSTER ]]; then
  cluster_is_up || die "KUBECONFIG is not set and the local cluster is not up: run make cluster-up, or set KUBECONFIG"
  use_local_cluster
fi
need_kubectl
hack/deploy.sh install
export RELATED_IMAGE_TRAINING_WORKER=$WORKER_IMG RELATED_IMAGE_CHECKPOINT_AGENT=$IMG
# shellcheck disable=SC2086 # RUN_ARGS are several words
exec go run . manager --leader-elect=false --metrics-bind-address=0 ${RUN_ARGS:-}
