#!/usr/bin/env bash
# The index of the chart repository: hack/chart-index.sh FOLDER URL [INDEX] writes FOLDER/index.yaml, which says that the charts in FOLDER
# are downloaded from URL. The charts in INDEX, an earlier one, stay in it.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ $# -eq 2 || $# -eq 3 ]] || die "usage: hack/chart-index.sh FOLDER URL [INDEX]"
arguments=("$1" --url "$2")
if [[ $# -eq 3 ]]; then
  # helm starts a new index when this file is missing, which would drop all earlier charts.
  [[ -s $3 ]] || die "there is no index $3"
  arguments+=(--merge "$3")
fi
"${HELM:-$BIN/helm}" repo index "${arguments[@]}"
