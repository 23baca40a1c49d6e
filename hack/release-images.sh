#!/usr/bin/env bash
# The images of a release, built without a container engine from the commit that catalog/releases.yaml records for it.
# The version that has no commit yet, which is the one in the file VERSION, is built from the tree.
#
#   hack/release-images.sh prepare VERSION                        the files only; prints their folder
#   hack/release-images.sh manager|worker|bundle|scorecard VERSION FLAGS...
#       the image; FLAGS say where it goes: --output FILE, --load, --push (see hack/localcluster)
#
# The folder has
#   source/          all files of the commit (for the tree: a link to it)
#   manager          the manager's binary, which says VERSION
#   bundle/          the OLM bundle
#
# An image is named REGISTRY/dcnlab/NAME:vVERSION, as the bundle names it. Pushed, it keeps its name without REGISTRY, so
# that a registry that stands in for REGISTRY has it where it is looked for.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What lies in an image must be readable to its user.
umask 022

prepare() {
  local commit
  make --silent "$BIN/catalog" >&2
  RELEASE=$("$BIN/catalog" describe "$1")
  version=$(value_of version)
  commit=$(value_of commit)
  folder=$STATE/releases/$version
  if [[ -n $commit && $(cat "$folder/stamp" 2>/dev/null) == "$commit" ]]; then return; fi
  rm -rf "$folder"
  mkdir -p "$folder"
  if [[ -n $commit ]]; then
    say "release $version from commit $commit" >&2
    "$BIN/catalog" export "$version" "$folder/source"
  else
    say "release $version from the tree" >&2
    ln -s "$ROOT" "$folder/source"
  fi
  cp -r "$folder/source/bundle" "$folder/bundle"
  go build -C "$folder/source" -trimpath -tags disable_grpc_modules,grpcnotrace -ldflags "-s -w -X main.version=$version" -o "$folder/manager" .
  if [[ -n $commit ]]; then echo "$commit" >"$folder/stamp"; fi
}

value_of() { sed -n "s/^$1=//p" <<<"$RELEASE"; }

# As hack/images.sh builds it.
manager() {
  build spot-training-operator "$@" \
    --file "$folder/manager:/usr/local/bin/spot-training-operator:0755" --passwd-nonroot --with-ca-certificates --user 65532:65532 \
    --env PATH=/usr/local/bin --entrypoint /usr/local/bin/spot-training-operator --cmd manager
}

# The large root file system is shared with hack/images.sh, as long as its recipe is the same.
worker() {
  local shared=$CACHE/worker-image own=$folder/worker
  mkdir -p "$own"
  if [[ -s $shared/rootfs.tar && ! -e $own/rootfs.tar ]]; then
    ln --force "$shared/rootfs.tar" "$shared/rootfs.stamp" "$own/"
  fi
  "$folder/source/workers/training/build-rootfs.sh" "$own"
  rm -rf "$own/app"
  mkdir "$own/app"
  tar --extract --file "$own/app.tar" --directory "$own/app"
  # Releases before the pooled workers have no such script.
  if [[ -x $folder/source/workers/install.sh ]]; then "$folder/source/workers/install.sh" "$own/app/opt/training-worker"; fi
  # Earlier ones have no such file either.
  local pth=$folder/source/workers/training/training-worker.pth start=()
  if [[ -e $pth ]]; then start=(--file "$pth:/usr/lib/python3/dist-packages/training-worker.pth:0644"); fi
  build spot-training-operator-worker "$@" "${start[@]}" \
    --rootfs "$own/rootfs.tar" --file "$own/app/opt/training-worker:/opt/training-worker" \
    --user 1000:1000 --workdir /tmp --entrypoint '["/usr/bin/python3", "-m", "training_worker"]' \
    --env PATH=/usr/local/bin:/usr/bin:/bin --env PYTHONPATH=/opt/training-worker \
    --env PYTHONDONTWRITEBYTECODE=1 --env PYTHONUNBUFFERED=1 \
    --env DATA_DIR=/opt/training-worker/data --env HOME=/tmp --env USER=trainer
}

# The same contents as bundle.Dockerfile's.
bundle() {
  local label labels=()
  while read -r label; do labels+=(--label "$label"); done < <(sed -n 's/^LABEL //p' "$folder/source/bundle.Dockerfile")
  build spot-training-operator-bundle "$@" \
    --file "$folder/bundle/manifests:/manifests" --file "$folder/bundle/metadata:/metadata" \
    --file "$folder/bundle/tests/scorecard:/tests/scorecard" "${labels[@]}"
}

# The same contents as scorecard/Dockerfile's.
scorecard() {
  go build -C "$folder/source" -trimpath -ldflags '-s -w' -o "$folder/scorecard" ./scorecard
  build spot-training-operator-scorecard "$@" \
    --file "$folder/scorecard:/scorecard:0755" --user 65532:65532 --entrypoint /scorecard --cmd list
}

# build NAME FLAGS...
build() {
  local name=$1
  shift
  localcluster build-image --tag "$(tag "$REGISTRY/dcnlab/$name:v$version" "$@")" "$@"
}

[[ $# -ge 2 ]] || die "usage: hack/release-images.sh prepare VERSION | manager|worker|bundle|scorecard VERSION FLAGS..."
case $1 in
prepare)
  prepare "$2"
  echo "$folder"
  ;;
manager | worker | bundle | scorecard)
  prepare "$2"
  "$1" "${@:3}"
  ;;
*) die "hack/release-images.sh: $1 is none of prepare, manager, worker, bundle, scorecard" ;;
esac
