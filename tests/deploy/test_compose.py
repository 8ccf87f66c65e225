"""The compose files, the Dockerfile and what they mount agree with each other and with compactd."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import Settings, load

ROOT = Path(__file__).parents[2]
STACK, SIDECAR = ROOT / "docker-compose.yml", ROOT / "deploy/sidecar/docker-compose.yml"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
DEPLOY = ROOT / "deploy"


@cache
def services(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())["services"]
    return found


def settings(service: dict[str, Any]) -> Settings:
    """What compactd runs with there: the image's variables, the service's, the configuration."""
    own = {name: re.sub(r"\$\{.*\}", "", value) for name, value in service["environment"].items()}
    image = dict(re.findall(r"(COMPACTD_\w+__\w+)=(\S+)", DOCKERFILE))
    return load(ROOT / "config/compactd.yaml", {**image, **own})


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Path inside -> path in the repository."""
    pairs = [entry.split(":") for entry in service.get("volumes", []) if entry.startswith(".")]
    return {pair[1]: pair[0] for pair in pairs}


def test_what_is_mounted_is_there() -> None:
    for service in services(STACK).values():
        for source in mounts(service).values():
            assert (ROOT / source).exists()
    assert mounts(services(STACK)["compactd"]) == {"/etc/compactd": "./config"}
    assert "COMPACTD_CONFIG=/etc/compactd/compactd.yaml" in DOCKERFILE


@pytest.mark.parametrize("file", [STACK, SIDECAR], ids=["stack", "sidecar"])
def test_compactd_is_confined_and_may_finish_what_runs(file: Path) -> None:
    service = services(file)["compactd"]
    assert (service["read_only"], service["cap_drop"], service["security_opt"]) == (
        True,
        ["ALL"],
        ["no-new-privileges:true"],
    )
    grace = int(service["stop_grace_period"].removesuffix("s"))
    assert grace >= settings(service).limits.drain_seconds + 5


def test_ports_are_the_default_one_and_published_to_this_machine_only() -> None:
    port = Settings().listen.port
    published = [entry for service in services(STACK).values() for entry in service.get("ports", [])]
    assert f"127.0.0.1:{port}:{port}" in published
    assert [entry for entry in published if not entry.startswith("127.0.0.1:")] == []
    assert re.findall(r"^EXPOSE (\d+)|127\.0\.0\.1:(\d+)/livez|--port\", \"(\d+)", DOCKERFILE, re.M) == [
        (str(port), "", ""), ("", str(port), ""), ("", "", str(port)),
    ]  # fmt: skip
    bases = [value for name, value in services(SIDECAR)["agent"]["environment"].items() if name.endswith("_BASE_URL")]
    assert bases == [f"http://127.0.0.1:{port}/v1", f"http://127.0.0.1:{port}"]


def test_the_sidecar_listens_on_loopback_and_the_stack_on_its_network() -> None:
    assert settings(services(SIDECAR)["compactd"]).listen.loopback
    assert services(SIDECAR)["agent"]["network_mode"] == "service:compactd"
    stack = settings(services(STACK)["compactd"])
    assert not stack.listen.loopback
    assert stack.store.url.startswith("redis://redis:")
    assert stack.public_base == "http://localhost:8787"


def test_every_image_has_a_version() -> None:
    images = [service["image"] for service in services(STACK).values() if "build" not in service]
    base = re.search(r"^ARG BASE=(\S+)$", DOCKERFILE, re.M)
    assert base
    for image in [*images, f"${{BASE:-{base[1].partition('@')[0]}}}"]:
        assert re.fullmatch(r"\$\{[A-Z_]+:-[\w/]+:v?\d+\.\d+(\.\d+)?(-[\w-]+)?\}", image), image


def test_the_image_is_made_of_what_it_needs() -> None:
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.M)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = set(re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M))
    wanted = {word.partition("/")[0] for words in copied for word in words.split()}
    assert wanted == kept


def test_prometheus_scrapes_compactd_and_loads_the_rules() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert (job["job_name"], found["names"], found["port"]) == ("compactd", ["compactd"], Settings().listen.port)
    loaded = {path.name for glob in config["rule_files"] for path in (DEPLOY / "prometheus").glob(glob)}
    rules = {
        path.name for path in (DEPLOY / "prometheus").glob("*.yml") if "groups" in yaml.safe_load(path.read_text())
    }
    assert loaded == rules


def test_grafana_finds_its_data_source_and_dashboards() -> None:
    inside = mounts(services(STACK)["grafana"])
    assert inside["/etc/grafana/provisioning"] == "./deploy/grafana/provisioning"
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/compactd.yml").read_text())["providers"]
    assert inside[provider["options"]["path"]] == "./deploy/grafana/dashboards"
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", "http://prometheus:9090", True)
    interval = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval


# With the tools


def test_promtool_accepts_the_configuration() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    ran = subprocess.run(
        [promtool, "check", "config", str(DEPLOY / "prometheus/prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("file", [STACK, SIDECAR], ids=["stack", "sidecar"])
def test_compose_accepts_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_IMAGE", "agent")
    for command in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(command[0])
            and not subprocess.run([*command, "version"], capture_output=True, check=False).returncode
        ):
            ran = subprocess.run([*command, "--file", str(file), "config"], capture_output=True, text=True, check=False)
            assert ran.returncode == 0, ran.stderr
            return
    pytest.skip("no docker compose")


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_a_script_is_one_that_bash_can_read(script: Path) -> None:
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True, check=False).returncode == 0
    assert script.stat().st_mode & 0o111


def test_the_base_is_told_with_its_digest(tmp_path: Path) -> None:
    """By an engine's answers, which are a script's here."""
    digest = "sha256:" + "0a" * 32
    engine = tmp_path / "docker"
    engine.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/asked"\n[ "$1" = pull ] || echo "${{ANSWER}}"\n')
    engine.chmod(0o755)

    def told(answer: str) -> subprocess.CompletedProcess[str]:
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ANSWER": answer}
        return subprocess.run([DEPLOY / "pin-base.sh"], env=path, capture_output=True, text=True, check=False)

    base = re.search(r"^ARG BASE=([^@\s]+)", DOCKERFILE, re.M)
    assert base
    assert told(f"python@{digest}").stdout == f"{base[1]}@{digest}\n"
    assert (tmp_path / "asked").read_text().startswith(f"pull --quiet {base[1]}\n")
    unknown = told("")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert base[1] in unknown.stderr
