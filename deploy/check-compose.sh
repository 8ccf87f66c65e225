#!/usr/bin/env bash
# Starts docker-compose.yml, sends a request through compactd, and looks whether Prometheus scrapes it, the rules are loaded and Grafana has
# its data source and dashboards; then the sidecar example, with compactd's own image in the agent's place. Takes everything down again.
# Needs a Docker engine that answers, docker compose, curl, and the ports of docker-compose.yml.
#
#   deploy/check-compose.sh
#   REDIS_IMAGE=compactd-redis:local PROMETHEUS_IMAGE=compactd-prometheus:local WITHOUT=grafana deploy/check-compose.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export COMPOSE_PROJECT_NAME=compactd-check
WITHOUT=${WITHOUT-} # a service to leave out, where its image can't be had
compose() { if docker compose version >/dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi; }
sidecar() { AGENT_IMAGE=compactd compose --project-name compactd-check-sidecar --file deploy/sidecar/docker-compose.yml "$@"; }
fail() { echo "FAILED: $*" >&2; compose logs --tail 20 >&2; exit 1; }
ask() { curl --silent --show-error --fail --noproxy '*' --max-time 10 "$@"; }
soon() { # soon COMMAND...: true within a minute
  local tries=120
  until "$@" >/dev/null 2>&1; do
    ((tries-- > 0)) || return 1
    sleep 0.5
  done
}
tidy() { compose down --volumes >/dev/null 2>&1 || true; sidecar down --volumes >/dev/null 2>&1 || true; }
trap tidy EXIT

mapfile -t services < <(compose config --services | grep -vx "${WITHOUT:-none}")
compose up --detach --no-build "${services[@]}" >/dev/null 2>&1 || fail "it does not start; build the image first: docker compose build"

soon ask http://127.0.0.1:8787/readyz || fail "compactd is not ready"
[[ $(ask http://127.0.0.1:8787/readyz) == *'"ok"'* ]] || fail "compactd has no store: $(ask http://127.0.0.1:8787/readyz)"
code=$(curl --silent --noproxy '*' --output /dev/null --write-out '%{http_code}' --max-time 30 http://127.0.0.1:8787/v1/chat/completions \
  --json '{"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]}')
echo "a request without a key: $code" # 401 from the provider; 502 where it can't be reached

up() { ask 'http://127.0.0.1:9090/api/v1/query?query=up\{job="compactd"\}' | grep -q '"1"\]'; }
soon up || fail "Prometheus does not scrape compactd"
counted() { ask 'http://127.0.0.1:9090/api/v1/query?query=sum(compactd_requests_total)' | grep -q '"[1-9][0-9]*"\]'; }
soon counted || fail "the request is in no metric"
for file in deploy/prometheus/*.rules.yml deploy/prometheus/*.alerts.yml; do
  [[ -f $file ]] || continue
  ask http://127.0.0.1:9090/api/v1/rules | grep -q "${file##*/}" || fail "Prometheus has not loaded $file"
done
echo "Prometheus: scrapes compactd, has its rules"

if [[ $WITHOUT != grafana ]]; then
  soon ask http://127.0.0.1:3000/api/health || fail "Grafana is not ready"
  for file in deploy/grafana/dashboards/*.json; do
    uid=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["uid"])' "$file")
    soon ask "http://127.0.0.1:3000/api/dashboards/uid/$uid" || fail "Grafana has not loaded $file"
  done
  echo "Grafana: has its dashboards"
fi

sidecar up --detach --no-build compactd >/dev/null 2>&1 || fail "the sidecar does not start"
sidecar run --rm -T --entrypoint python3 agent -c '
import os, time, urllib.request
for _ in range(60):
    try:
        print("sidecar:", urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"] + "/readyz", timeout=2).read().decode())
        break
    except OSError:
        time.sleep(0.5)
else:
    raise SystemExit(1)' 2>/dev/null || fail "the agent does not reach its sidecar"
