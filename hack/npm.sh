#!/usr/bin/env bash
# Installs what only npm has, as a lock file pins it: hack/npm.sh FOLDER NAME installs the package.json of FOLDER, once for all checkouts of
# this machine, and makes BIN/NAME a link to it. Installs the Debian packages of npm where it is missing.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ $# -eq 2 ]] || die "usage: hack/npm.sh FOLDER NAME"
ensure_package npm nodejs npm

installed=$CACHE/npm/$2-$(cat "$1/package.json" "$1/package-lock.json" | sha256sum | cut -c1-16)
if [[ ! -d $installed ]]; then
  say "installing $2"
  mkdir -p "$CACHE/npm"
  folder=$(mktemp -d "$installed.XXXXXX")
  trap 'rm -rf "$folder"' EXIT
  cp "$1/package.json" "$1/package-lock.json" "$folder/"
  npm ci --prefix "$folder" --ignore-scripts --omit=dev --no-audit --no-fund --loglevel=error || die "$2 could not be installed"
  # Another checkout may have installed the same.
  mv --no-target-directory "$folder" "$installed" 2>/dev/null || [[ -d $installed ]]
fi
rm -rf "${BIN:?}/$2"
mkdir -p "$BIN"
ln -s "$installed" "$BIN/$2"
touch "$BIN/$2/package.json" # which make looks at
