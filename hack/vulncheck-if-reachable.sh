#!/usr/bin/env bash
# Runs make vulncheck where the Go vulnerability database answers; says so in one line where it does not.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

make --no-print-directory "$BIN/govulncheck"
# govulncheck states when the database was last changed only after asking it.
if timeout 60 "$BIN/govulncheck" -version 2>/dev/null | grep -q '^DB updated'; then
  make --no-print-directory vulncheck
else
  echo "govulncheck was not run: its database cannot be reached from this machine."
fi
