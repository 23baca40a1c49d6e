#!/usr/bin/env bash
# make olm-e2e: the tests of test/suites/olm on the live node with the real OLM. Brings up both, builds the images of the
# releases from the history and those of the present version from the tree, puts them into the node's registry under
# the names that they are published by, and stops at the end what it has started.
#
#   hack/olm-e2e.sh               all of it; OLM_E2E_ARGS: more arguments for go test
#   hack/olm-e2e.sh push-update   puts a catalog with a version more in the place of the one that is served
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CATALOG_IMAGE=$REGISTRY/dcnlab/spot-training-operator-catalog:latest
WORK=$STATE/olm-e2e
PRESENT=$(<VERSION)
# A version that comes after the present one: the same program under another name.
NEXT=${PRESENT%.*}.$((${PRESENT##*.} + 1))
STARTED_NODE=

main() {
  trap cleanup EXIT
  [[ -z $USER_CLUSTER ]] || die "these tests need the local node, whose registry they fill: unset KUBECONFIG"
  mkdir -p "$WORK"
  ensure_mmdebstrap
  in_background worker-image hack/images.sh prepare-worker
  bring_node_up
  say "OLM"
  localcluster olm up
  finish worker-image
  push_images
  say "tests"
  # shellcheck disable=SC2086 # OLM_E2E_ARGS are several words
  CATALOG_IMAGE=$CATALOG_IMAGE PUSH_UPDATE="$ROOT/hack/olm-e2e.sh push-update" \
    VERSIONS="$(releases)" NEXT_VERSION=$NEXT \
    "$BIN/gotestsum" --format standard-verbose -- -tags olm -count=1 -timeout 40m ./test/suites/olm/... ${OLM_E2E_ARGS:-}
}

# releases: the versions of the catalog, the present one last.
releases() { sed -n 's/^- version: //p' catalog/releases.yaml | xargs; }

bring_node_up() {
  if ! cluster_is_up; then
    say "starting the node"
    STARTED_NODE=yes
    localcluster up --mirror "$REGISTRY"
  fi
  use_local_cluster
}

push_images() {
  local version image
  for version in $(releases); do
    say "images of version $version"
    for image in manager worker bundle; do
      hack/release-images.sh "$image" "$version" --push >>"$WORK/images.log"
    done
  done
  say "the catalog and its next version"
  hack/catalog.sh image --push >>"$WORK/images.log"
  prepare_update
}

# prepare_update: the bundle of the next version, and a catalog that has it in the channel candidate.
prepare_update() {
  local bundle=$WORK/bundle catalog=$WORK/catalog image=dcnlab/spot-training-operator-bundle:v$NEXT
  rm -rf "$bundle" "$catalog"
  cp -r bundle "$bundle"
  cp -r catalog/spot-training-operator "$catalog"
  sed -i \
    -e "s/^  name: spot-training-operator\.v$PRESENT$/  name: spot-training-operator.v$NEXT/" \
    -e "s/^  version: $PRESENT$/  version: $NEXT/" \
    -e "s/^  replaces: .*/  replaces: spot-training-operator.v$PRESENT/" \
    "$bundle/manifests/spot-training-operator.clusterserviceversion.yaml"
  localcluster build-image --tag "$image" --push \
    --file "$bundle/manifests:/manifests" --file "$bundle/metadata:/metadata" \
    --labels-from "$bundle/metadata/annotations.yaml" >>"$WORK/images.log"
  sed -i "/^name: candidate$/i - name: spot-training-operator.v$NEXT\n  replaces: spot-training-operator.v$PRESENT" "$catalog/catalog.yaml"
  {
    echo ---
    HOME=$(localcluster registries-conf --home) "$BIN/opm" render "$REGISTRY/$image" --output yaml --use-http \
      --migrate-level bundle-object-to-csv-metadata
  } >>"$catalog/catalog.yaml"
  "$BIN/opm" validate "$catalog"
}

push_update() { CATALOG_DIR=$WORK/catalog hack/catalog.sh image --push; }

cleanup() {
  stop_background
  if [[ -n $STARTED_NODE ]]; then
    mkdir -p "$LOG_DIR"
    localcluster down >"$LOG_DIR/olm-e2e-down.log" 2>&1 || note "stopping the node failed: see ${LOG_DIR#"$ROOT"/}/olm-e2e-down.log" >&2
  fi
}

case ${1:-} in
"") main ;;
push-update) push_update ;;
*) die "usage: hack/olm-e2e.sh [push-update]" ;;
esac
