#!/usr/bin/env bash
# Installs Azurite, which only npm has, into BIN, and the Debian packages of npm where it is missing.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ensure_package npm nodejs npm

say "installing Azurite"
folder=$BIN/azurite
mkdir -p "$folder"
cp hack/tools/azurite/package-lock.json "$folder/"
cp hack/tools/azurite/package.json "$folder/" # which make looks at
if ! npm ci --prefix "$folder" --ignore-scripts --omit=dev --no-audit --no-fund --loglevel=error; then
  rm -f "$folder/package.json"
  die "Azurite could not be installed"
fi
touch "$folder/package.json"
