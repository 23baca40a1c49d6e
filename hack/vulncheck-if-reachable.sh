#!/usr/bin/env bash
# Runs make vulncheck: with the Go vulnerability database where it answers, else with the copy that .github/workflows/vulndb.yml keeps on
# the branch vulndb. Warns when the copy is old, and when there is neither.
#
# VULNDB_COPY: a copy to take in place of the branch's.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The database changes several times a week.
MAX_DAYS=14

main() {
  make --no-print-directory "$BIN/govulncheck"
  # govulncheck states when the database was last changed only after asking it.
  if timeout 60 "$BIN/govulncheck" -version 2>/dev/null | grep -q '^DB updated'; then
    make --no-print-directory vulncheck
    return
  fi
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  if ! copy | tar --extract --gzip --directory "$folder" 2>/dev/null; then
    warn "govulncheck WAS NOT RUN: its database cannot be reached from this machine, and this clone has no copy of it." \
      "Fetch one: git fetch origin vulndb:refs/remotes/origin/vulndb"
    return
  fi
  warn_if_old "$folder/index/db.json"
  make --no-print-directory vulncheck VULNDB="file://$folder"
}

copy() {
  if [[ -n ${VULNDB_COPY:-} ]]; then
    cat "$VULNDB_COPY"
  else
    git -c safe.directory="$ROOT" cat-file blob origin/vulndb:vulndb.tar.gz
  fi 2>/dev/null
}

warn_if_old() {
  local modified days
  modified=$(sed -E 's/.*"modified": *"([^"]+)".*/\1/' "$1")
  days=$((($(date +%s) - $(date --date "$modified" +%s)) / 86400))
  if ((days > MAX_DAYS)); then
    warn "govulncheck runs with a database of $modified, $days days ago: newer vulnerabilities are not found." \
      "Fetch a newer copy: git fetch origin vulndb:refs/remotes/origin/vulndb"
  fi
}

# .ci/run repeats these lines at its end.
warn() {
  printf 'WARNING: %s\n' "$@"
  if [[ -n ${GITHUB_ACTIONS:-} ]]; then printf '::warning::%s\n' "$*"; fi
}

main
