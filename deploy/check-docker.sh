#!/usr/bin/env bash
# Builds the image and tries it for real: read-only and not root, without any network, as a proxy, and stopped while a stream runs.
# Prints the image's size, the time to start and the memory it holds. Needs a Docker engine that answers, curl and python3.
#
#   deploy/check-docker.sh
#   BASE=compactd-python:local deploy/check-docker.sh     # on another base image; deploy/base-images.sh makes this one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

IMAGE=${IMAGE:-compactd:check}
RUN=compactd-check-$$
HARDENED=(--read-only --cap-drop ALL --security-opt no-new-privileges)
work=$(mktemp -d)

fail() { echo "FAILED: $*" >&2; exit 1; }
now() { date +%s.%N; }
since() { python3 -c 'import sys; print(f"{float(sys.argv[2]) - float(sys.argv[1]):.1f}")' "$1" "$(now)"; }
process_began() { date --date "$(docker inspect -f '{{.State.StartedAt}}' "$1")" +%s.%N; }
until_true() { # until_true SECONDS COMMAND...
  local tries=$(($1 * 20))
  shift
  until "$@" >/dev/null 2>&1; do
    ((tries-- > 0)) || return 1
    sleep 0.05
  done
}
healthy() { [[ $(docker inspect -f '{{.State.Health.Status}}' "$1") == healthy ]]; }
exited() { [[ $(docker inspect -f '{{.State.Status}}' "$1") == exited ]]; }
tidy() {
  docker rm --force --volumes "$RUN" "$RUN-provider" "$RUN-alone" >/dev/null 2>&1 || true
  docker network rm "$RUN" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap tidy EXIT

docker version >/dev/null 2>&1 || fail "no Docker engine answers; start one, or set DOCKER_HOST"

from=${BASE:-$(sed -n 's/^ARG BASE=//p' Dockerfile)}
docker image inspect "$from" >/dev/null 2>&1 || docker pull --quiet "$from" >/dev/null # a builder may keep it to itself

echo "== build"
docker build --network host ${BASE:+--build-arg "BASE=$BASE"} --tag "$IMAGE" . >"$work/build.log" 2>&1 || {
  tail -20 "$work/build.log"
  fail "the image does not build"
}
size=$(docker image inspect -f '{{.Size}}' "$IMAGE")
base=$(docker image inspect -f '{{.Size}}' "$from")

echo "== alone: no network, so nothing can be downloaded"
docker run --detach --name "$RUN-alone" --network none "${HARDENED[@]}" --tmpfs /tmp "$IMAGE" >/dev/null
until_true 60 healthy "$RUN-alone" || fail "not healthy without a network: $(docker logs "$RUN-alone" 2>&1)"
[[ $(docker exec "$RUN-alone" id -u) == 10001 ]] || fail "it runs as another user than 10001"
docker exec "$RUN-alone" sleep 0 || fail "there is no sleep in it, which Kubernetes' preStop needs"
! docker exec "$RUN-alone" touch /opt/compactd/x 2>/dev/null || fail "its file system can be written to"
docker exec "$RUN-alone" compactd check | sed 's/^/   /'
idle=$(docker stats --no-stream --format '{{.MemUsage}}' "$RUN-alone")

echo "== as a proxy, between a client and a fake provider"
cat >"$work/compactd.yaml" <<YAML
upstreams:
  provider: {base_url: "http://provider:9000", formats: [openai-chat, anthropic-messages]}
policies:
  - {name: low, strategy: tool_result_clearing, trigger_threshold: 2000, keep_recent_tool_results: 1}
YAML
chmod 755 "$work" && chmod 644 "$work/compactd.yaml"
docker network create "$RUN" >/dev/null
docker run --detach --name "$RUN-provider" --network "$RUN" --network-alias provider --entrypoint python3 \
  --volume "$PWD:/src:ro" --workdir /src --env PYTHONPATH=/src "$IMAGE" -c '
import uvicorn
from tests.strict.answers import Reply
from tests.strict.server import StrictProvider
slow = StrictProvider(answer=lambda form, body: Reply(text="told slowly " * 20), event_gap=0.5)
uvicorn.run(slow, host="0.0.0.0", port=9000, lifespan="off", log_level="critical")' >/dev/null
began=$(now)
docker run --detach --name "$RUN" --network "$RUN" --publish 127.0.0.1::8787 "${HARDENED[@]}" --tmpfs /tmp \
  --volume "$work/compactd.yaml:/etc/compactd/compactd.yaml:ro" "$IMAGE" >/dev/null
url=http://$(docker port "$RUN" 8787/tcp | head -1)
ask() { curl --silent --show-error --fail --noproxy '*' --max-time 60 "$@"; }
until_true 60 ask "$url/readyz" || fail "not ready: $(docker logs "$RUN" 2>&1)"
started=$(since "$began")
ready=$(since "$(process_began "$RUN")")
until_true 60 docker exec "$RUN-provider" python3 -c 'import socket; socket.create_connection(("127.0.0.1", 9000))' \
  || fail "the fake provider does not come up: $(docker logs "$RUN-provider" 2>&1)"

python3 - "$work" <<'PYTHON'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
messages = [{"role": "user", "content": "Read the files."}]
for n in range(8):
    call = {"id": f"call_{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages += [{"role": "assistant", "content": None, "tool_calls": [call]},
                 {"role": "tool", "tool_call_id": f"call_{n}", "content": f"{n}: " + "a line of a file\n" * 100}]
tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
body = {"model": "gpt-4o", "tools": tools, "messages": messages}
folder.joinpath("long.json").write_text(json.dumps(body))
folder.joinpath("stream.json").write_text(json.dumps({**body, "stream": True}))
PYTHON
post() { ask "$url/v1/chat/completions" --header 'authorization: Bearer k' --header 'content-type: application/json' "$@"; }
for outcome in compacted replayed; do
  post --data @"$work/long.json" --dump-header "$work/head" --output "$work/answer" || fail "a request failed"
  grep -qi "^x-compactd-outcome: $outcome" "$work/head" || fail "not $outcome: $(cat "$work/head")"
done
archive=$(sed -n 's/^x-compactd-archive: \([^ ]*\)\r$/\1/Ip' "$work/head")
ask "$url/${archive#http://*/}" | grep -q '"items"' || fail "the archive does not open at $archive"
ask "$url/metrics" | grep -q '^compactd_compactions_total{.*} 1.0' || fail "/metrics does not tell of the compaction"

echo "== SIGTERM while a stream runs"
post --no-buffer --data @"$work/stream.json" --output "$work/stream" &
stream=$!
until_true 30 grep -q 'data:' "$work/stream" || fail "no stream"
began=$(now)
docker kill --signal TERM "$RUN" >/dev/null
until_true 5 bash -c "[[ \$(curl --silent --noproxy '*' --output /dev/null --write-out '%{http_code}' $url/readyz) == 503 ]]" \
  || fail "/readyz does not say 503 while stopping"
wait "$stream" || fail "the stream broke"
grep -q '\[DONE\]' "$work/stream" || fail "the stream ended early"
until_true 30 exited "$RUN" || fail "it does not end"
drained=$(since "$began")
[[ $(docker inspect -f '{{.State.ExitCode}}' "$RUN") == 0 ]] || fail "exit code $(docker inspect -f '{{.State.ExitCode}}' "$RUN")"

python3 - "$size" "$base" "$started" "$ready" "$idle" "$drained" <<'PYTHON'
import sys
size, base, started, ready, idle, drained = sys.argv[1:]
print(f"""
image      {int(size) / 1e6:.0f} MB, of which the base {int(base) / 1e6:.0f} MB
start      {ready} s from the process to a ready answer, {started} s from `docker run`
memory     {idle.partition(" /")[0]} idle
stop       {drained} s, until the stream that was running was complete
""")
PYTHON
