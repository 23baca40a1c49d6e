#!/usr/bin/env bash
# The OLM catalog of all releases.
#
#   hack/catalog.sh generate         writes catalog/spot-training-operator/catalog.yaml and validates it
#   hack/catalog.sh image FLAGS...   builds the catalog's image without a container engine; FLAGS say where it goes:
#                                    --output FILE, --load, --push (see hack/localcluster)
#
# CATALOG_DIR: another folder than catalog/spot-training-operator to make the image of.
# REGISTRY: the registry of the bundle images. The bundles themselves come from the commits that catalog/releases.yaml
# names, so nothing needs to have been pushed there.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CATALOG_DIR=${CATALOG_DIR:-catalog/spot-training-operator}

generate() {
  if [[ -n ${SKIP_CATALOG_IF_SHALLOW:-} && $(git -c safe.directory="$ROOT" rev-parse --is-shallow-repository) == true ]]; then
    say "THE CATALOG WAS NOT CHECKED: this clone is shallow and lacks the releases' commits (git fetch --unshallow)"
    return
  fi
  "$BIN/catalog" render --images "$REGISTRY/dcnlab" --opm "$BIN/opm"
  say "catalog/ has $(grep -c '^schema: olm.bundle' catalog/spot-training-operator/catalog.yaml) version(s) and is valid"
}

# The same contents as catalog.Dockerfile's: opm's cache belongs to its user, or opm could not read it.
image() {
  local tools cache=$STATE/images/catalog/cache
  tools=$(localcluster tools)
  rm -rf "$cache"
  mkdir -p "$(dirname "$cache")"
  "$tools/opm" serve "$CATALOG_DIR" --cache-dir="$cache" --cache-only
  localcluster build-image --tag "$(tag "$REGISTRY/dcnlab/spot-training-operator-catalog:latest" "$@")" \
    --file "$tools/opm:/bin/opm:0755" --file "$tools/grpc_health_probe:/bin/grpc_health_probe:0755" \
    --file "$CATALOG_DIR:/configs" --file "$cache:/tmp/cache::1001:0" \
    --passwd-nonroot --user 1001:1001 --label operators.operatorframework.io.index.configs.v1=/configs \
    --entrypoint /bin/opm --cmd '["serve", "/configs", "--cache-dir=/tmp/cache"]' "$@"
}

case ${1:-} in
generate) generate ;;
image) image "${@:2}" ;;
*) die "usage: hack/catalog.sh generate | image FLAGS..." ;;
esac
