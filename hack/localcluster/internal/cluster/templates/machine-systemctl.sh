#!/bin/sh
# Stands in for the one of systemd, which does not run on this machine.
exec /usr/local/bin/localcluster machine systemctl -- "$@"
