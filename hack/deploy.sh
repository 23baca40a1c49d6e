#!/usr/bin/env bash
# Deploys the operator with kustomize into the cluster of KUBECONFIG, or into the local cluster.
#
#   hack/deploy.sh apply          everything, with the images IMG and WORKER_IMG; waits until it is ready
#   hack/deploy.sh delete         everything, the CRDs (and so all objects of these kinds) first
#   hack/deploy.sh install        the CRDs only;  uninstall removes them
#   hack/deploy.sh render         prints what apply would send
#
# WEBHOOK_CERTS says who makes the certificate of the webhooks: self (the manager, the default), cert-manager, or none
# for no webhooks. DEPLOY_COMPONENTS names kustomize components below config/ to add, for example "local" or "network-policy prometheus".
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A throw-away overlay, so that naming the images changes no file of the repository.
OVERLAY=$BIN/deploy

render() {
  local component components
  components=$(components)
  rm -rf "$OVERLAY"
  mkdir -p "$OVERLAY"
  {
    echo "apiVersion: kustomize.config.k8s.io/v1beta1"
    echo "kind: Kustomization"
    echo "resources:"
    echo "- $(config_path base)"
    echo "components:"
    for component in $components; do echo "- $(config_path "$component")"; done
    echo "patches:"
    echo "- path: manager.yaml"
    if grep -qw job-service <<<"$components"; then echo "- path: job-service.yaml"; fi
    if grep -qw network-policy-egress <<<"$components"; then
      api_server_patch >"$OVERLAY/api-server.yaml"
      echo "- path: api-server.yaml"
      echo "  target: {kind: NetworkPolicy, name: spot-training-operator-egress-(manager|job-service)}"
    fi
  } >"$OVERLAY/kustomization.yaml"
  image_patches "$OVERLAY" "$IMG" "$WORKER_IMG" "$(build_id)"
  kubectl kustomize "$OVERLAY"
}

# api_server_patch: the addresses and ports of the cluster's API server for the egress policies, of its Service and of what is behind that.
api_server_patch() {
  local found addresses ports address port
  found=$(kubectl get -n default service/kubernetes endpointslices/kubernetes -o jsonpath='{.items[*].spec.clusterIPs[*]} {.items[*].endpoints[*].addresses[*]}
{.items[*].spec.ports[*].port} {.items[*].ports[*].port}')
  {
    read -ra addresses
    read -ra ports
  } <<<"$found"
  ((${#addresses[@]} > 1)) || die "the cluster does not say where its API server is: name it in an overlay of your own, as config/network-policy-egress tells"
  echo "- op: replace"
  echo "  path: /spec/egress/0/to"
  echo "  value:"
  for address in "${addresses[@]}"; do
    if [[ $address == *:* ]]; then address+=/128; else address+=/32; fi
    echo "  - ipBlock: {cidr: '$address'}"
  done
  echo "- op: replace"
  echo "  path: /spec/egress/0/ports"
  echo "  value:"
  for port in "${ports[@]}"; do echo "  - {port: $port, protocol: TCP}"; done
}

config_path() { realpath --relative-to="$OVERLAY" "config/$1"; }

# What hack/images.sh loaded last under the name IMG; otherwise the name alone.
build_id() {
  local loaded
  loaded=$(cat "$STATE/images/manager.loaded" 2>/dev/null || true)
  if [[ $loaded == "$IMG "* ]]; then echo "${loaded#"$IMG "}"; else echo "$IMG"; fi
}

# What is added to config/base; by default the same as config/default has.
components() {
  local served
  served=$(kubectl get --raw /apis/admissionregistration.k8s.io/v1)
  if [[ $served == *'"mutatingadmissionpolicies"'* ]]; then
    echo admission
  else
    note "this cluster serves no MutatingAdmissionPolicy v1: the manager labels pods itself" >&2
  fi
  echo job-user
  echo node-agent
  echo node-binding
  echo node-join
  case ${WEBHOOK_CERTS:-self} in
  self) echo webhook-self ;;
  cert-manager) echo certmanager ;;
  none) ;;
  *) die "WEBHOOK_CERTS=$WEBHOOK_CERTS is none of self, cert-manager and none" ;;
  esac
  echo "${DEPLOY_COMPONENTS:-}"
}

apply() {
  say "deploying the operator"
  # Server-side: the CRDs are longer than the annotation that a client-side apply would keep them in.
  render | kubectl apply --server-side --force-conflicts -f - | awk 'END {print "    " NR " objects applied"}'
  await "$DEPLOYMENT" "the operator" 180
  # Its pod starts once the manager has made its certificate.
  if grep -qw job-service <<<"${DEPLOY_COMPONENTS:-}"; then await "$JOB_SERVICE" "the job service" 300; fi
}

# await DEPLOYMENT WHAT SECONDS
await() {
  if ! kubectl -n "$NAMESPACE" rollout status "deployment/$1" --timeout="$3s" | sed 's/^/    /'; then
    {
      kubectl -n "$NAMESPACE" get pods -o wide || true
      kubectl -n "$NAMESPACE" get events --sort-by=.lastTimestamp | tail -n 20 || true
      kubectl -n "$NAMESPACE" logs "deployment/$1" --tail=50 || true
    } >&2
    die "$2 did not become ready within $3 s"
  fi
}

# While the manager runs, its finalizers can do their work.
delete() {
  say "removing the CRDs and every object of these kinds"
  uninstall
  say "removing the operator"
  render | kubectl delete --ignore-not-found -f -
}

install() { kubectl apply --server-side --force-conflicts -k config/crd; }

uninstall() { kubectl delete --ignore-not-found --timeout=180s -k config/crd; }

main() {
  if [[ -z $USER_CLUSTER ]]; then
    cluster_is_up || die "KUBECONFIG is not set and the local cluster is not up: run make cluster-up, or set KUBECONFIG"
    use_local_cluster
  fi
  need_kubectl
  case ${1:-} in
  apply | delete | install | uninstall | render) "$1" ;;
  *) die "usage: hack/deploy.sh apply | delete | install | uninstall | render" ;;
  esac
}

main "$@"
