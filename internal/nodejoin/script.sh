#!/bin/bash
# {{.Title}}
# Made by spot-training-operator. It may run at every start of the instance: what is done already is not done again.
set -uo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 077

# What outlives a restart: the file prepared once the instance is prepared, failed when that went wrong.
state=/var/lib/spot-training-operator

# The guest agent writes what is printed here to the serial console.
say() { printf 'spot-training-operator: %s\n' "$*"; }

fail() {
  say "$*"
  exit 1
}
{{- if .Prepare}}

# The instance is prepared by the script of its SpotInstanceVM, which begins with the default permissions of files.
prepare() {
  if [[ -e $state/prepared ]]; then
    say "the startup script has run already"
    return
  fi
  rm -f "$state/failed"
  base64 --decode >"$state/startup-script" <<'STARTUP_SCRIPT'
{{.Prepare}}
STARTUP_SCRIPT
  chmod 0700 "$state/startup-script"
  say "running the startup script"
  local code=0
  (
    umask 022
    exec "$state/startup-script"
  ) </dev/null || code=$?
  if ((code != 0)); then
    echo "$code" >"$state/failed"
    fail "the startup script ended with exit code $code, so the instance does not join: correct spec.startupScript (it runs again when the instance restarts)"
  fi
  touch "$state/prepared"
  say "the startup script is done"
}
{{- end}}
{{- if .WaitForPreparation}}

# The startup script runs by itself, and joining comes after it.
wait_until_prepared() {
  say "waiting for the startup script"
  until [[ -e $state/prepared ]]; do
    if [[ -e $state/failed ]]; then fail "the startup script ended with exit code $(<"$state/failed"): correct spec.startupScript"; fi
    if ((SECONDS >= limit)); then fail "the startup script did not end within $limit s"; fi
    sleep 1
  done
}
{{- end}}
{{- if .Join}}

limit={{.Limit}}
secret={{.Secret}}

# Prints what it reads, without the secret of the token.
redact() {
  local line
  while IFS= read -r line || [[ -n $line ]]; do printf '%s\n' "${line//"$secret"/[redacted]}"; done
}

# kubeadm has had another form of this file since 1.31.
configuration() {
  local version
  version=$(kubeadm version -o short) || return
  if [[ $version =~ ^v1\.([0-9]+) ]] && ((BASH_REMATCH[1] < 31)); then
    cat <<'KUBEADM'
{{.V1beta3}}
KUBEADM
  else
    cat <<'KUBEADM'
{{.V1beta4}}
KUBEADM
  fi
}

join() {
  if [[ -s /etc/kubernetes/kubelet.conf ]]; then
    say "this instance is a node already"
    return
  fi
  command -v kubeadm >/dev/null || fail "there is no kubeadm on the PATH: use a vmImage that has kubelet and kubeadm, or install them in spec.startupScript"
  config=$(mktemp) || fail "cannot make a temporary file"
  trap 'rm -f "$config"' EXIT
  configuration >"$config" || fail "kubeadm does not say its version"
  local attempt=0 pause
  while :; do
    attempt=$((attempt + 1))
    # What an attempt that was cut off has left is in the way of the next one.
    if [[ -e /etc/kubernetes/bootstrap-kubelet.conf || -e /var/lib/kubelet/config.yaml ]]; then
      kubeadm reset --force </dev/null 2>&1 | redact
    fi
    say "kubeadm join to {{.Endpoint}} as node {{.Node}}, attempt $attempt"
    if kubeadm join --config "$config" </dev/null 2>&1 | redact; then
      say "joined"
      return
    fi
    pause=$((attempt < 6 ? attempt * 5 : 30))
    if ((SECONDS + pause >= limit)); then fail "kubeadm join failed $attempt times within $limit s; the last output is above"; fi
    say "kubeadm join failed, again in $pause s"
    sleep "$pause"
  done
}
{{- end}}

main() {
  mkdir -p "$state" || fail "cannot make $state"
{{- if .Prepare}}
  prepare
{{- end}}
{{- if .WaitForPreparation}}
  wait_until_prepared
{{- end}}
{{- if .Join}}
  join
{{- end}}
}

main
exit
