#!/usr/bin/env bash
# make scorecard: runs operator-sdk's scorecard with all suites of bundle/ on the local cluster, or on the cluster of
# KUBECONFIG, in which the operator must be. Ends with a table of the results; exit code 1 when a test fails.
#
#   BUNDLE=folder              the bundle, bundle/ by default
#   SCORECARD_SELECTOR=labels  only these tests, for example suite=level3, or test=kind-trainingjob
#   SCORECARD_WAIT=20m         how long all tests together may take
#   KEEP=1                     leaves the namespace and the ServiceAccount of the tests
#   UNTAR_IMAGE=image          with a cluster of your own: what unpacks the bundle in a test's pod. That cluster must be
#                              able to pull it and the images that the bundle's scorecard configuration names.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

BUNDLE=${BUNDLE:-bundle}
CONFIG=$BUNDLE/tests/scorecard/config.yaml
RBAC=config/scorecard/rbac
SCORECARD_NAMESPACE=spot-training-operator-scorecard
SERVICE_ACCOUNT=scorecard
RESULT=$LOG_DIR/scorecard.txt
# Every object that a test makes has it.
MADE_BY_TESTS=scorecard.ml.example.com/test

main() {
  [[ -f $CONFIG ]] || die "there is no $CONFIG: run make bundle, or set BUNDLE to the folder of a bundle"
  mkdir -p "$LOG_DIR"
  if [[ -z $USER_CLUSTER ]]; then
    cluster_is_up || die "the local cluster is not up: run make cluster-up, and install the operator; or set KUBECONFIG"
    use_local_cluster
    build_tools
    build_images
  else
    need_kubectl
    build_tools
  fi
  need_operator
  trap cleanup EXIT
  kubectl apply -k "$RBAC" | sed 's/^/    /'
  run
}

# The scorecard's own words, then a table of them.
run() {
  local selector arguments code=0 expected
  selector=$(selector)
  arguments=(scorecard "$BUNDLE" --selector "$selector")
  expected=$("$PROGRAMS/operator-sdk" "${arguments[@]}" --list | grep -c '^Entrypoint:') || die "no test matches the selector $selector"
  arguments+=(--namespace "$SCORECARD_NAMESPACE" --service-account "$SERVICE_ACCOUNT" --pod-security restricted
    --wait-time "${SCORECARD_WAIT:-20m}" --output text)
  if [[ -n ${UNTAR_IMAGE:-} ]]; then arguments+=(--untar-image "$UNTAR_IMAGE"); fi
  say "operator-sdk scorecard: $expected tests"
  "$PROGRAMS/operator-sdk" "${arguments[@]}" 2>&1 | tee "$RESULT" || code=1
  say "results"
  table "$expected" || code=1
  left_behind || code=1
  exit "$code"
}

# Tests that look at what OLM does have nothing to look at where it did not install the operator.
selector() {
  local wanted=${SCORECARD_SELECTOR:-} csv
  csv=$(sed -n 's/^  name: //p' "$BUNDLE"/manifests/*.clusterserviceversion.yaml)
  if ! kubectl get clusterserviceversions --all-namespaces --field-selector "metadata.name=$csv" --output name 2>/dev/null | grep -q .; then
    note "OLM has not installed $csv here: leaving out the tests with the label needs=olm" >&2
    wanted="${wanted:+$wanted,}needs!=olm"
  fi
  printf '%s' "$wanted"
}

# table EXPECTED: one line for each result; fails when one is not pass, or when there are fewer than tests.
table() {
  awk -v expected="$1" '
    /^\t"suite":/ {gsub(/["\t,]/, ""); sub(/^suite:/, ""); suite = $0}
    /^\tName: /   {name = $2}
    /^\tState: /  {
      results++
      if ($2 == "pass") passed++
      printf "    %-8s %-32s %s\n", suite, name, $2
    }
    END {
      printf "    %d of %d tests pass\n", passed, expected
      exit !(expected > 0 && results == expected && passed == expected)
    }' "$RESULT"
}

# Tests clean up, also when they fail.
left_behind() {
  local objects
  objects=$(kubectl get trainingjobs,spotinstancejobs,spotinstancevms,aijobs,agents,agentworkflows,aijobqueues,computeclusters \
    --all-namespaces --selector "$MADE_BY_TESTS" --output name
    kubectl get persistentvolumeclaims --namespace "$SCORECARD_NAMESPACE" --output name)
  if [[ -z $objects ]]; then return; fi
  note "left behind by the tests:"
  printf '      %s\n' "${objects//$'\n'/$'\n'      }"
  return 1
}

need_operator() {
  local found
  found=$(kubectl get deployments --all-namespaces --field-selector "metadata.name=$DEPLOYMENT" --output name)
  [[ -n $found ]] || die "the operator is not in the cluster: install it from its catalog, or run make deploy"
}

build_tools() { localcluster tools >/dev/null; }

# The images by the names that the bundle has for them. The scorecard pulls none that is on the node.
build_images() {
  local own sdk
  own=$(image_of spot-training-operator-scorecard)
  sdk=$(image_of scorecard-test)
  UNTAR_IMAGE=$(localcluster scorecard-image)
  # The pod names the program without a folder.
  load "$sdk" --file "$PROGRAMS/scorecard-test:/usr/local/bin/scorecard-test:0755" --env PATH=/usr/local/bin \
    --user 65532:65532 --entrypoint /usr/local/bin/scorecard-test
  mkdir -p "$STATE/images/scorecard"
  go build -trimpath -ldflags '-s -w' -o "$STATE/images/scorecard/scorecard" ./scorecard
  load "$own" --file "$STATE/images/scorecard/scorecard:/scorecard:0755" --user 65532:65532 --entrypoint /scorecard --cmd list
}

image_of() {
  local name
  name=$(grep -oE "image: [^ ]*/$1:[^ ]+" "$CONFIG" | sort -u | cut -d' ' -f2)
  [[ -n $name && $name != *$'\n'* ]] || die "$CONFIG: want one image $1, found: ${name:-none}"
  printf '%s' "$name"
}

load() {
  local image=$1
  shift
  localcluster build-image --tag "$image" "$@" --load | sed 's/^/    /'
}

# shellcheck disable=SC2317 # called by the trap
cleanup() {
  if [[ -n ${KEEP:-} ]]; then
    note "namespace $SCORECARD_NAMESPACE is kept; remove it with: kubectl delete -k $RBAC"
    return
  fi
  kubectl delete --ignore-not-found --timeout=120s -k "$RBAC" >/dev/null || note "removing the namespace of the tests failed" >&2
}

main "$@"
