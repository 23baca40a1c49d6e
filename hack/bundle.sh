#!/usr/bin/env bash
# The OLM bundle of the version in the file VERSION.
#
#   hack/bundle.sh generate   writes bundle/, bundle.Dockerfile, and the descriptors in config/manifests/bases
#   hack/bundle.sh validate   runs operator-sdk's checks on bundle/; a warning counts as an error
#   hack/bundle.sh validate-images   the same for the check that looks at the published images
#   hack/bundle.sh record     writes into hack/bundle.sum that the bundle and the catalog were made of what is there now
#   hack/bundle.sh is-recorded   says by its exit code whether that still holds
#
# REGISTRY: the registry that the images' names begin with. A bundle for another registry than the default one is for
# use, not for a commit. DIGESTS: those of images, as NAME=sha256:..., separated by blanks. Such an image is named by its digest as well,
# so that what a cluster runs does not change with the tag.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SDK=$BIN/operator-sdk
OVERLAY=$BIN/bundle
CSV=bundle/manifests/spot-training-operator.clusterserviceversion.yaml

# The ServiceAccount of what the manager runs beside itself; OLM makes it, and its roles.
NODE_AGENT=spot-training-operator-node-agent

# OLM unpacks a bundle into one ConfigMap, each file compressed and in base64, and refuses more than this.
MAX_BYTES=$((1024 * 1024))

generate() {
  local release
  release=$("$BIN/catalog" describe)
  update_descriptors
  overlay "$release"
  rm -rf bundle bundle.Dockerfile
  "$BIN/kustomize" build --load-restrictor=LoadRestrictionsNone "$OVERLAY" |
    "$SDK" generate bundle --quiet --overwrite --package spot-training-operator --extra-service-accounts "$NODE_AGENT" \
      --version "$(value_of version "$release")" \
      --channels "$(value_of channels "$release")" --default-channel "$(value_of defaultChannel "$release")"
  complete "$release"
}

value_of() { sed -n "s/^$1=//p" <<<"$2"; }

# The operator's own images in the registry, as IMAGE:vVERSION, with @DIGEST where it is known.
image() {
  local known digest=
  for known in ${DIGESTS:-}; do
    if [[ $known == "$1="sha256:* ]]; then digest=@${known#*=}; fi
  done
  printf '%s/dcnlab/%s:v%s%s' "$REGISTRY" "$1" "$2" "$digest"
}

# The descriptors come from the markers in the API types.
update_descriptors() { "$SDK" generate kustomize manifests --quiet --interactive=false --apis-dir api; }

# overlay RELEASE: a throw-away kustomization with what depends on the version.
overlay() {
  local version manager replaces
  rm -rf "$OVERLAY"
  mkdir -p "$OVERLAY"
  version=$(value_of version "$1")
  replaces=$(value_of replaces "$1")
  manager=$(image spot-training-operator "$version")
  cat >"$OVERLAY/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- $(realpath --relative-to="$OVERLAY" config/manifests)
patches:
- path: csv.yaml
- path: manager.yaml
- path: job-service.yaml
YAML
  cat >"$OVERLAY/csv.yaml" <<YAML
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: spot-training-operator.v0.0.0
  namespace: placeholder
  annotations:
    containerImage: $manager
spec:
  icon:
  - base64data: $(base64 --wrap=0 config/manifests/icon.svg)
    mediatype: image/svg+xml
$(if [[ -n $replaces ]]; then echo "  replaces: $replaces"; fi)
YAML
  image_patches "$OVERLAY" "$manager" "$(image spot-training-operator-worker "$version")"
}

# complete RELEASE: what operator-sdk does otherwise or not at all. It writes the present time into the bundle, but equal
# sources shall give equal bundles, so the release's date replaces it. It takes the related images from the
# environment of the manager, where the manager's own is not, and gives an image that several variables name no name: the
# one of both agents.
complete() {
  local date
  date=$(value_of date "$1")T00:00:00Z
  sed -i -E \
    -e "s/^(    createdAt: ).*/\1\"$date\"/" \
    -e 's/^    name: ""$/    name: agents/' \
    -e "/^  relatedImages:\$/a\  - image: $(image spot-training-operator "$(value_of version "$1")")\n    name: manager" "$CSV"
  grep -q "^    createdAt: \"$date\"\$" "$CSV" || die "$CSV: cannot find the annotation createdAt"
  grep -q '^    name: agents$' "$CSV" || die "$CSV: cannot find the related image of the agents"
  grep -q '^    name: manager$' "$CSV" || die "$CSV: cannot find relatedImages"
  sed -i -e "s#image: registry\.example\.com/#image: $REGISTRY/#" \
    -e "s#image: .*/spot-training-operator-scorecard:v0\.0\.0\$#image: $(image spot-training-operator-scorecard "$(value_of version "$1")")#" \
    bundle/tests/scorecard/config.yaml
  # operator-sdk reads the webhooks' port from their Service, and leaves it in the bundle. OLM makes one of its own.
  rm bundle/manifests/spot-training-operator-webhook_v1_service.yaml
}

# operator-sdk's optional checks. multiarch asks a container engine for which platforms the images are there, which can only
# be seen once they are published: hack/bundle.sh validate-images.
CHECKS=(alpha-deprecated-apis capabilities categories community good-practices operatorhub operatorhubv2)

validate() {
  local check
  diff <(printf 'name=%s\n' "${CHECKS[@]}" multiarch | LC_ALL=C sort) \
    <("$SDK" bundle validate --list-optional | grep -oE '\<name=[a-z0-9-]+' | LC_ALL=C sort) >&2 ||
    die "operator-sdk has other optional checks than hack/bundle.sh knows: bring its list up to date"
  validate_with
  validate_with --select-optional suite=operatorframework
  validate_with --select-optional suite=operatorframework --optional-values=k8s-version=1.36
  for check in "${CHECKS[@]}"; do validate_with --select-optional "name=$check" --optional-values=index-path=bundle.Dockerfile; done
  check_size
  say "operator-sdk has nothing to object to in the bundle"
}

# Needs the images in REGISTRY and Docker to look at them (or CONTAINER_TOOL=podman).
validate_images() {
  validate_with --select-optional name=multiarch --optional-values="container-tools=${CONTAINER_TOOL:-docker}"
}

# Two of the checks warn of themselves: that they are to be replaced by others, which run here too.
DEPRECATED='The Optional\(stage: alpha\) Community Operator bundle validator is deprecated|The \\"operatorhub\\" validator is deprecated'

validate_with() {
  local output
  if ! output=$("$SDK" bundle validate ./bundle "$@" 2>&1) ||
    grep -vE "$DEPRECATED" <<<"$output" | grep -qE 'level=(warning|error|fatal)'; then
    printf '%s\n' "$output" >&2
    die "operator-sdk bundle validate ./bundle $*"
  fi
}

check_size() {
  local file bytes=0
  for file in bundle/manifests/*; do bytes=$((bytes + $(gzip --best --stdout "$file" | base64 --wrap=0 | wc -c))); done
  note "the bundle takes $((bytes / 1024)) KiB of the $((MAX_BYTES / 1024)) KiB that OLM unpacks"
  ((bytes < MAX_BYTES)) || die "the bundle is larger than OLM unpacks: shorten descriptions, or examples"
}

# What the bundle and the catalog are made of, by which programs, and the result. Where nothing of this has changed, they are what they were
# when they were checked: operator-sdk and opm take minutes to build.
RECORDED=(api config VERSION go.mod go.sum hack/bundle.sh hack/lib.sh hack/catalog hack/catalog.sh hack/tools/go.mod
  hack/localcluster/components/operator-sdk/go.mod hack/localcluster/components/opm/go.mod
  bundle bundle.Dockerfile catalog catalog.Dockerfile)

fingerprint() { find "${RECORDED[@]}" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64; }

record() { fingerprint >hack/bundle.sum; }

is_recorded() {
  if [[ $(fingerprint) != $(cat hack/bundle.sum) ]]; then return 1; fi
  say "the bundle and the catalog are those on record in hack/bundle.sum"
}

case ${1:-} in
generate) generate ;;
record) record ;;
is-recorded) is_recorded ;;
validate) validate ;;
validate-images) validate_images ;;
*) die "usage: hack/bundle.sh generate | validate | validate-images | record | is-recorded" ;;
esac
