#!/usr/bin/env bash
# Prints what CHANGELOG.md says of a version: hack/release-notes.sh 1.2.3. Fails when that is nothing, or the version is another than
# that of the tree, which is in the file VERSION.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ $# -eq 1 ]] || die "usage: hack/release-notes.sh VERSION"
[[ $1 == "$(<VERSION)" ]] || die "the version of the tree is $(<VERSION), not $1: tag the commit whose file VERSION says $1"
notes=$(awk -v heading="## [$1]" 'index($0, "## [") == 1 {within = index($0, heading) == 1; next} /^\[/ {within = 0} within' CHANGELOG.md)
[[ -n ${notes//[[:space:]]/} ]] || die "CHANGELOG.md has no section $1: move what is under Unreleased there"
printf '%s\n' "$notes"
