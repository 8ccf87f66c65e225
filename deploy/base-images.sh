#!/usr/bin/env bash
# Makes stand-ins for the public images where no image registry can be reached, from Debian's packages: compactd-python:local for the
# Dockerfile's base, compactd-redis:local for Redis, compactd-prometheus:local for Prometheus. They are for checks, not for use.
# Needs a Docker engine that answers, debootstrap, and root.
set -euo pipefail

make_image() { # make_image NAME SUITE PACKAGES DOCKER-IMPORT-CHANGE...
  local name=$1 suite=$2 packages=$3 root
  shift 3
  docker image inspect "$name" >/dev/null 2>&1 && return
  root=$(mktemp -d)
  chmod 755 "$root" # it becomes the image's root, where users that are not root have to pass
  debootstrap --variant=minbase --include="$packages" "$suite" "$root" >/dev/null
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" 2>/dev/null || true # also a company's own authority
  rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
  tar -C "$root" -c . | docker import "$@" - "$name" >/dev/null
  rm -rf "$root"
  echo "$name"
}

make_image compactd-python:local trixie ca-certificates,python3,python3-venv,python3-pip
make_image compactd-redis:local trixie redis-server,redis-tools --change 'CMD ["redis-server", "--protected-mode", "no", "--save", ""]' \
  --change 'EXPOSE 6379'
make_image compactd-prometheus:local trixie prometheus --change 'ENTRYPOINT ["prometheus"]' --change 'EXPOSE 9090'
