#!/usr/bin/env bash
# Installs what only npm has, as a lock file pins it: hack/npm.sh FOLDER NAME installs the package.json of FOLDER into BIN/NAME.
# Installs the Debian packages of npm where it is missing.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ $# -eq 2 ]] || die "usage: hack/npm.sh FOLDER NAME"
ensure_package npm nodejs npm

say "installing $2"
folder=$BIN/$2
mkdir -p "$folder"
cp "$1/package-lock.json" "$folder/"
cp "$1/package.json" "$folder/" # which make looks at
if ! npm ci --prefix "$folder" --ignore-scripts --omit=dev --no-audit --no-fund --loglevel=error; then
  rm -f "$folder/package.json"
  die "$2 could not be installed"
fi
touch "$folder/package.json"
