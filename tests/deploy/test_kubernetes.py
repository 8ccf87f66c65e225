"""The Kubernetes files agree with compactd: ports, paths, names, seconds. Where there are tools for it, what they build is checked too."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from app import __version__
from app.cli import cli
from app.edge.metrics import Metrics
from app.main import App
from app.settings import Settings, load
from deploy.prometheus import operator

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
FILES = sorted(FOLDER.rglob("*.yaml"))
CONFIG = FOLDER / "config/compactd.yaml"
OVERLAYS = ("sqlite", "redis", "sidecar")
MARGIN = 10
"""Seconds between the end of a drain and SIGKILL."""

FULL, PER_BYTE = 290 << 20, 7
"""Bytes of memory: a worker's whose caches are full, and for each byte of the bodies that it holds; measured with four bodies of 31 MB at
once (906 MB)."""

LEFT_OUT = {
    "CKV_K8S_43": "the registry that has the image is the operator's, and so is its digest",
    "CKV_K8S_15": "a tag of a release does not change; IfNotPresent also runs without the registry",
    "CKV_K8S_35": "compactd reads secrets from its environment",
}
"""checkov's checks that do not hold, and why."""
THE_AGENTS = {
    "CKV_K8S_8": "the agent's own probes",
    "CKV_K8S_9": "the agent's own probes",
    "CKV2_K8S_6": "where an agent may connect to is not ours to say",
}


@cache
def parts(file: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def deployment() -> Any:
    return parts("base/deployment.yaml")[0]["spec"]["template"]["spec"]


def sidecar() -> Any:
    return parts("overlays/sidecar/sidecar.yaml")[0]["spec"]["template"]["spec"]


CONTAINERS = {"base": lambda: deployment()["containers"][0], "sidecar": lambda: sidecar()["initContainers"][0]}


def settings(container: Any) -> Settings:
    """What compactd in this container runs with: the configuration that is mounted, and the variables."""
    return load(CONFIG, {**image_environment(), **environment(container)})


def environment(container: Any) -> dict[str, str]:
    values = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    return {name: value.replace("$(NAMESPACE)", "here") for name, value in values.items()}


def image_environment() -> dict[str, str]:
    return dict(re.findall(r"(COMPACTD_\w+__\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_every_file_is_yaml_and_used(file: Path) -> None:
    assert all(isinstance(part, dict) for part in yaml.safe_load_all(file.read_text()))
    if file.name != "kustomization.yaml":
        assert file.name in (file.parent / "kustomization.yaml").read_text()


def test_the_configuration_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("COMPACTD_"):
            monkeypatch.delenv(name)
    result = CliRunner().invoke(cli, ["check", "--config", str(CONFIG)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("place", CONTAINERS)
def test_variables_are_options(place: str) -> None:
    container = CONTAINERS[place]()
    named = [name for name in environment(container) if name.startswith("COMPACTD_")]
    assert named
    settings(container)  # a variable that sets no option is a fault


@pytest.mark.parametrize(("place", "pod"), [("base", deployment), ("sidecar", sidecar)])
def test_a_pod_outlives_its_drain(place: str, pod: Any) -> None:
    container = CONTAINERS[place]()
    hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "5"])
    assert hook[0] == "sleep"
    drain = settings(container).limits.drain_seconds
    assert pod()["terminationGracePeriodSeconds"] == int(hook[1]) + drain + MARGIN


def test_a_drain_is_not_stuck_before_its_time_is_over() -> None:
    groups = yaml.safe_load((ROOT / "deploy/prometheus/compactd.alerts.yml").read_text())["groups"]
    waits = {rule["alert"]: rule.get("for", "") for group in groups for rule in group["rules"]}
    minutes = int(waits["CompactdDrainStuck"].removesuffix("m"))
    assert minutes * 60 > settings(CONTAINERS["base"]()).limits.drain_seconds


def test_ports_are_the_default_one() -> None:
    container = CONTAINERS["base"]()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": settings(container).listen.port} == {"http": Settings().listen.port}
    service = parts("base/service.yaml")[0]["spec"]
    assert [(port["targetPort"], port["port"]) for port in service["ports"]] == [("http", ports["http"])]
    assert settings(container).public_base == f"http://compactd.here:{ports['http']}"
    policy = parts("base/network.yaml")[0]["spec"]
    assert policy["ingress"][0]["ports"][0]["port"] == "http"
    assert str(ports["http"]) in str(CONTAINERS["sidecar"]()["startupProbe"])


async def test_probes_and_scrapes_ask_for_paths_that_answer() -> None:
    container = CONTAINERS["base"]()
    paths = {kind: container[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert "/livez" in str(CONTAINERS["sidecar"]()["startupProbe"])
    scraped = parts("monitoring/servicemonitor.yaml")[0]["spec"]["endpoints"][0]
    assert scraped["port"] == "http"
    app = App(load(None, {"COMPACTD_STORE__URL": "memory://", "COMPACTD_LISTEN__HOST": "0.0.0.0"}))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://10.1.2.3:8787") as http:
        for path in {*paths.values(), scraped["path"]}:
            assert (await http.get(path)).status_code == 200


def test_the_operators_rules_are_those_that_are_tested() -> None:
    assert operator.FILE.read_text() == operator.manifest(), "run python -m deploy.prometheus.operator"


def test_it_scales_on_a_metric_that_exists() -> None:
    patch = yaml.safe_load(parts("monitoring/kustomization.yaml")[0]["patches"][0]["patch"])
    name = patch[0]["value"]["pods"]["metric"]["name"]
    assert f"\n{name} " in Metrics(CollectorRegistry()).text().decode()


@pytest.mark.parametrize("place", CONTAINERS)
def test_memory_suffices_for_what_it_may_hold(place: str) -> None:
    container = CONTAINERS[place]()
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
    assert limit >= FULL + PER_BYTE * settings(container).limits.max_held_bytes


@pytest.mark.parametrize("place", CONTAINERS)
def test_it_may_do_nothing_that_it_need_not(place: str) -> None:
    container, pod = CONTAINERS[place](), deployment()
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.M)
    assert user
    given = {**pod["securityContext"], **container["securityContext"]}
    assert (given["runAsNonRoot"], given["runAsUser"], given["runAsGroup"]) == (True, int(user[1]), int(user[2]))
    assert (given["allowPrivilegeEscalation"], given["readOnlyRootFilesystem"]) == (False, True)
    assert given["capabilities"] == {"drop": ["ALL"]}
    assert {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == {"/data", "/tmp"}
    assert set(container["resources"]) == {"requests", "limits"}


@pytest.mark.parametrize("file", ["base/kustomization.yaml", "overlays/sidecar/kustomization.yaml"])
def test_the_image_is_that_of_this_version(file: str) -> None:
    assert parts(file)[0]["images"] == [{"name": "compactd", "newTag": __version__}]


# With the tools


def tool(name: str) -> str:
    """Where it is: `make kubernetes` installs it. Skips without it."""
    own = ROOT / ".venv-kubernetes/bin" / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}; `make kubernetes` installs it")
    return found


@cache
def built(overlay: str) -> str:
    """What `kubectl apply -k` would apply. Skips without a kubectl that knows today's kustomize."""
    kubectl = tool("kubectl")
    told = subprocess.run(
        [kubectl, "version", "--client", "--output=json"], capture_output=True, text=True, check=False
    )
    if not json.loads(told.stdout or "{}").get("kustomizeVersion", "").startswith("v5"):
        pytest.skip("this kubectl's kustomize is older than 5")
    ran = subprocess.run(
        [kubectl, "kustomize", str(FOLDER / "overlays" / overlay)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def objects(overlay: str) -> dict[str, Any]:
    return {part["kind"]: part for part in yaml.safe_load_all(built(overlay))}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_has_its_place_and_the_pods_their_configuration(overlay: str) -> None:
    made = objects(overlay)
    namespaces = {part["metadata"].get("namespace") for kind, part in made.items() if kind != "Namespace"}
    assert namespaces == {"agents" if overlay == "sidecar" else "compactd"}
    pod = made["Deployment"]["spec"]["template"]["spec"]
    mounted = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    assert mounted == [made["ConfigMap"]["metadata"]["name"]]
    assert made["ConfigMap"]["data"] == {"compactd.yaml": CONFIG.read_text()}


def test_sqlite_is_one_pod_on_a_volume() -> None:
    made = objects("sqlite")
    spec = made["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    volumes = {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}
    claim = {"claimName": made["PersistentVolumeClaim"]["metadata"]["name"]}
    assert volumes["data"] == {"name": "data", "persistentVolumeClaim": claim}
    assert {"HorizontalPodAutoscaler", "PodDisruptionBudget"}.isdisjoint(made)


def test_redis_is_many_pods_on_one_store() -> None:
    made = objects("redis")
    spec = made["Deployment"]["spec"]
    assert "replicas" not in spec  # or every `kubectl apply` would undo what the autoscaler did
    store = [
        entry for entry in spec["template"]["spec"]["containers"][0]["env"] if entry["name"] == "COMPACTD_STORE__URL"
    ]
    assert store[0]["valueFrom"] == {"secretKeyRef": {"name": "compactd", "key": "COMPACTD_STORE__URL"}}
    assert [metric["type"] for metric in made["HorizontalPodAutoscaler"]["spec"]["metrics"]] == ["Resource", "Pods"]
    assert {
        "PodDisruptionBudget",
        "NetworkPolicy",
        "ServiceMonitor",
        "PrometheusRule",
        "Service",
        "ServiceAccount",
    } <= set(made)


def test_sidecar_changes_nothing_of_the_agent_but_its_pod() -> None:
    pod = objects("sidecar")["Deployment"]["spec"]["template"]["spec"]
    assert pod["containers"] == parts("overlays/sidecar/agent.yaml")[0]["spec"]["template"]["spec"]["containers"]
    assert [(one["name"], one["restartPolicy"]) for one in pod["initContainers"]] == [("compactd", "Always")]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_schema_holds(overlay: str, tmp_path: Path) -> None:
    pytest.importorskip("kubernetes_validate")
    (tmp_path / "built.yaml").write_text(built(overlay))
    command = [sys.executable, "-m", "kubernetes_validate.__main__", "--strict", str(tmp_path / "built.yaml")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{ran.stdout}{ran.stderr}".count("passed for resource") >= 2


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_checkov_finds_nothing_else(overlay: str, tmp_path: Path) -> None:
    checkov = tool("checkov")
    (tmp_path / "built.yaml").write_text(built(overlay))
    skipped = [*LEFT_OUT, *(THE_AGENTS if overlay == "sidecar" else ())]
    ran = subprocess.run(
        [checkov, "--quiet", "--compact", "--skip-download", "--framework", "kubernetes", "--output", "json",
         "--skip-check", ",".join(skipped), "--file", str(tmp_path / "built.yaml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads(ran.stdout)
    assert [check["check_id"] for check in found["results"]["failed_checks"]] == []
    assert found["summary"]["resource_count"] > 0
