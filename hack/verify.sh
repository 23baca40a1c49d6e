#!/usr/bin/env bash
# make verify, after everything has been generated into place: hack/verify.sh GENERATED_PATH...
# Fails when a generated file differs from the commit or is in none, when go.mod is not tidy, when config/ does not build.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A checkout that belongs to another user is still this one.
git() { command git -c safe.directory="$ROOT" "$@"; }

generated_files_are_committed() {
  local changes
  changes=$(git status --porcelain --untracked-files=all -- "$@")
  if [[ -z $changes ]]; then return; fi
  git --no-pager diff -- "$@" | head -n 200
  printf '%s\n' "$changes"
  die "generated files differ from the commit: run make generate bundle catalog and commit the result"
}

go_mod_is_tidy() {
  go mod tidy -diff || die "go.mod or go.sum is not tidy: run go mod tidy and commit the result"
}

config_builds() {
  local folder
  for folder in crd base default chart namespaced monitoring checkpoint-agent; do
    "$BIN/kustomize" build "config/$folder" >/dev/null || die "config/$folder does not build"
  done
  for folder in admission certmanager grafana job-service local network-policy network-policy-egress network-policy-egress/cloud \
    network-policy-egress/metadata-server prometheus webhook-olm webhook-self; do
    component_builds "$folder"
  done
}

# A component is built on top of config/base, as an overlay does it.
component_builds() {
  local overlay=$BIN/verify
  rm -rf "$overlay"
  mkdir -p "$overlay"
  cat >"$overlay/kustomization.yaml" <<EOF
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- $(realpath --relative-to="$overlay" config/base)
components:
- $(realpath --relative-to="$overlay" "config/$1")
EOF
  "$BIN/kustomize" build "$overlay" >/dev/null || die "config/$1 does not build on top of config/base"
}

generated_files_are_committed "$@"
go_mod_is_tidy
config_builds
say "generated files, go.mod and config/ are as they should be"
