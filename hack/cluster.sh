#!/usr/bin/env bash
# Starts and stops the local one-node cluster: hack/cluster.sh up | down. prepare only builds its programs.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case ${1:-} in
up | down | status) localcluster "$@" ;;
prepare) localcluster programs ;;
*) die "usage: hack/cluster.sh up | down | status | prepare" ;;
esac
