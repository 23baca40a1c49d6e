#!/usr/bin/env bash
# Builds a tool that a Go module pins, once per version on this machine: hack/tool.sh OUT MODULE PACKAGE [FLAGS OF go build...]
# builds PACKAGE in the folder MODULE and links it as OUT. Built tools are kept in CACHE/tools and shared by all checkouts.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

main() {
  (($# >= 3)) || die "usage: hack/tool.sh OUT MODULE PACKAGE [FLAGS...]"
  local out=$1 module=$2 package=$3 name key kept
  shift 3
  name=$(basename "$out")
  key=$({
    cat "$module/go.mod" "$module/go.sum"
    go version
    echo "$package" "$@"
  } | sha256sum | cut -c1-16)
  kept=$CACHE/tools/$name-$key
  mkdir -p "$(dirname "$kept")" "$(dirname "$out")"
  if [[ ! -x $kept ]]; then
    (
      # Another checkout may be building the same.
      exec 9>"$kept.lock"
      flock 9
      if [[ -x $kept ]]; then exit; fi
      say "building $name"
      with_heartbeat "$name" build "$kept" "$module" "$package" "$@"
    )
  fi
  # make compares its age with that of the module that pins it.
  touch "$kept"
  ln -sfn "$kept" "$out"
}

build() {
  local kept=$1 module=$2 package=$3
  shift 3
  # Compilers live for seconds: collecting garbage is of little use to them. One line for each of hundreds of modules would bury the rest.
  GOGC=1000 go build -C "$module" "$@" -o "$kept.new" "$package" 2> >(grep -v '^go: downloading ' >&2)
  mv "$kept.new" "$kept"
}

main "$@"
