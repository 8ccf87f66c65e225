#!/usr/bin/env bash
# Prints the Dockerfile's base with the digest that its tag has now, for all platforms: python:…@sha256:…
# Whoever builds with it gets these very bytes, and can write them down. Needs a Docker engine that answers, and the registry.
#
#   docker build --build-arg "BASE=$(deploy/pin-base.sh)" --tag compactd .
#   deploy/pin-base.sh registry.example/python:3.13.16-slim-trixie     # of another image
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base=${1:-$(sed -n 's/^ARG BASE=\([^@]*\).*/\1/p' Dockerfile)}
docker pull --quiet "$base" >/dev/null
pulled=$(docker image inspect --format '{{join .RepoDigests "\n"}}' "$base" | head -1)
[[ ${pulled##*@} =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "no digest of $base: ${pulled:-it was built here, not pulled}" >&2; exit 1; }
echo "$base@${pulled##*@}"
