"""docs/operations.md tells the truth: its commands, files, options and variables exist, its figures are the files', its backup restores."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from app.core import view
from app.edge.stores import StoreOptions, guarded, memory, redis
from app.settings import load
from app.settings.schema import options
from app.steps import keeping, replaying, shaping
from tests.deploy.load import KEYS, sections
from tests.edge.processes import process
from tests.edge.talks import Talk
from tests.strict.server import StrictProvider

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / name).read_text() for name in ("docs/operations.md", "deploy/README.md")}
PAGE = PAGES["docs/operations.md"]
SHELL = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    for line in block.replace("\\\n", "").splitlines()
]


def test_named_options_exist() -> None:
    known = {".".join(path) for path, _ in options()}
    sections_ = {name.partition(".")[0] for name in known}
    named = {text.partition(":")[0] for page in PAGES.values() for text in re.findall(r"`([a-z]+\.[a-z_]+)[`:]", page)}
    assert len(named) > 10
    assert {name for name in named if name.partition(".")[0] in sections_} - known == set()


@pytest.mark.parametrize("page", PAGES)
def test_named_variables_set_options(page: str) -> None:
    values = {
        "COMPACTD_STORE__URL": "memory://",
        "COMPACTD_LISTEN__PUBLIC_URL": "http://x",
        "COMPACTD_LISTEN__HOST": "::",
    }
    for name in set(re.findall(r"COMPACTD_[A-Z_]+[A-Z]", PAGES[page])) - {"COMPACTD_CONFIG"}:
        load(None, {name: values.get(name, "secret")})


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page: str) -> None:
    files = re.findall(r"`((?:deploy|config|docs|app|tests)/[\w./-]+)`", PAGES[page])
    assert [file for file in files if not (ROOT / file).exists()] == []
    overlays = re.findall(r"`((?:overlays|base|monitoring)/[\w./-]*)`", PAGES[page])
    assert [name for name in overlays if not (ROOT / "deploy/kubernetes" / name).exists()] == []


def test_its_commands_are_known() -> None:
    first = {shlex.split(line)[0] for line in SHELL if line and not line.startswith("#")}
    assert first <= {"docker", "install", "kubectl", "make", "python3", "systemctl"}
    copied = [word for line in SHELL for word in re.findall(r"/opt/compactd/(\S+)", line)]
    assert copied
    assert all((ROOT / file).is_file() for file in copied)
    applied = [words[-1] for words in map(shlex.split, SHELL) if words[:2] == ["kubectl", "apply"]]
    assert all((ROOT / path / "kustomization.yaml").is_file() for path in applied)
    assert len(applied) == 1


def test_an_embedded_store_fits_its_volume() -> None:
    bound = StoreOptions().max_bytes
    assert f"stops at {bound >> 30} GiB" in PAGE
    kubernetes = ROOT / "deploy/kubernetes"
    sizes = [
        int(size)
        for file in kubernetes.rglob("*.yaml")
        for size in re.findall(r"(?:sizeLimit|storage): (\d+)Gi", file.read_text())
    ]
    assert len(sizes) == 3
    assert min(sizes) << 30 > bound * 5 / 4  # the log beside the file, and copies


def test_the_adapter_rule_is_yaml_for_the_metric_that_is_scaled_on() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
    (rule,) = yaml.safe_load(block)["rules"]["custom"]
    patch = (ROOT / "deploy/kubernetes/monitoring/kustomization.yaml").read_text()
    assert f"name: {rule['seriesQuery'].partition('{')[0]}}}" in patch


async def test_the_backup_of_a_running_compactd_restores(tmp_path: Path) -> None:
    """What was compacted before is replayed from the copy, byte for byte."""
    (command,) = [line for line in SHELL if line.startswith("python3 -c") and "backup(" in line]
    code = (
        shlex.split(command)[2]
        .replace("data/compactd.db", f"{tmp_path}/one.db")
        .replace("backup.db", f"{tmp_path}/two.db")
    )
    provider, talk = StrictProvider(), Talk("anthropic-messages").ask("Read.").rounds(8)
    outcomes = []
    async with provider.serve() as url:
        for number, name in enumerate(("one", "two")):
            async with process(tmp_path, **sections(url, f"sqlite:///{tmp_path}/{name}.db")) as compactd:
                answer = await compactd.http.post("/v1/messages", json=talk.body, headers=KEYS)
                outcomes.append(answer.headers["x-compactd-outcome"])
                if number == 0:
                    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: ASYNC221  the file is all that it waits for
    assert outcomes == ["compacted", "replayed"]
    assert len({seen.raw for seen in provider.requests}) == 1


def test_what_is_remembered_is_told_as_it_is_bounded() -> None:
    """Whole MiB. What has no bound in bytes, at the end, was measured."""
    told = [int(size) for size in re.findall(r"^\| [^|]* \| (\d+) \|$", PAGE, re.M)]
    of_a_store = 1 - memory.ARCHIVES - memory.COMPACTIONS
    bounds = [
        view.ITEM_BYTES, view.REWRITTEN_BYTES + view.CHAIN_BYTES + shaping.SHORTENED_BYTES,
        keeping.DECODED_BYTES + replaying.REPLAYED_BYTES, int(guarded.LOCAL_BYTES * of_a_store), redis.CACHE_BYTES + redis.LISTED_BYTES,
    ]  # fmt: skip
    assert told == [*(bound >> 20 for bound in bounds), told[5], sum(told[:6])]
