#!/usr/bin/env bash
# The OLM catalog of all releases.
#
#   hack/catalog.sh generate         writes catalog/template.yaml and catalog/spot-training-operator/catalog.yaml, and
#                                    validates the latter
#   hack/catalog.sh image FLAGS...   builds the catalog's image without a container engine; FLAGS say where it goes:
#                                    --output FILE, --load, --push (see hack/localcluster)
#
# REGISTRY: the registry of the bundle images. The bundles themselves come from the commits that catalog/releases.yaml
# names, so nothing needs to have been pushed there.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

generate() {
  "$BIN/catalog" render --images "$REGISTRY/dcnlab" --opm "$BIN/opm"
  say "catalog/ has $(grep -c '^schema: olm.bundle' catalog/spot-training-operator/catalog.yaml) version(s); opm finds nothing wrong with it"
}

# The same contents as catalog.Dockerfile's, but for the cache: opm makes it when it starts.
image() {
  make --silent "$BIN/opm"
  localcluster build-image --tag "$(tag "$REGISTRY/dcnlab/spot-training-operator-catalog:latest" "$@")" \
    --file "$BIN/opm:/bin/opm:0755" --file catalog/spot-training-operator:/configs/spot-training-operator \
    --passwd-nonroot --user 65532:65532 --label operators.operatorframework.io.index.configs.v1=/configs \
    --entrypoint /bin/opm --cmd '["serve", "/configs", "--cache-dir=/tmp/cache"]' "$@"
}

case ${1:-} in
generate) generate ;;
image) image "${@:2}" ;;
*) die "usage: hack/catalog.sh generate | image FLAGS..." ;;
esac
