"""Imports run one way. Read from the source, so that an import inside a function counts too; one for the type checker alone doesn't.

`main, cli -> edge -> compaction -> {formats, strategies, summaries, registry} -> core`, with `errors`, `settings` and `records` as leaves
beside them. Compaction is whatever stands in `app/` under no other name: the compactor and the files that it is made of.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

APP = Path(__file__).parents[1] / "app"
PARTS = frozenset(path.stem for path in APP.iterdir() if path.suffix == ".py" or path.is_dir()) - {
    "__init__",
    "__pycache__",
}

PURE = frozenset({"core", "formats", "strategies", "summaries", "registry"})
LEAVES = frozenset({"errors", "settings", "records"})
OUTER = frozenset({"edge", "main", "cli"})
COMPACTION = PARTS - PURE - LEAVES - OUTER

MAY: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "settings": frozenset({"errors"}),
    "records": frozenset(),
    "core": frozenset({"errors"}),
    "formats": frozenset({"core", "errors"}),
    "strategies": frozenset({"core", "errors"}),
    "summaries": frozenset({"core", "errors"}),
    "registry": frozenset({"core", "errors"}),
    "edge": PARTS - {"main", "cli"},
    "main": PARTS - {"cli"},
    "cli": PARTS,
}
"""Part of the app -> the other parts that it may import. Compaction: all but OUTER."""

EXCEPT = {("edge/server.py", "main")}
"""A worker process builds its own app, so the server names the composition root."""

NETWORK = frozenset({"httpx", "redis", "fastapi", "starlette", "uvicorn", "httptools", "aiohttp"})
WAITING = frozenset({"asyncio", "socket", "subprocess"})
CORE_LIBRARIES = frozenset({"msgspec", "xxhash", "tiktoken"})


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Dotted names of all modules that are imported at run time; `package` is where relative imports begin."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] + "." if node.level else ""
            module = (above + (node.module or "")).rstrip(".")
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "app" else (module,)
        yield from imported(node, package)


def faults(file: str, source: str) -> list[str]:
    """What a file of the app (its path below `app/`) imports although it may not."""
    part = file.split("/")[0].removesuffix(".py")
    package = ".".join(["app", *file.split("/")[:-1]])
    may = PARTS - OUTER if part in COMPACTION else MAY[part]
    found = []
    for name in imported(ast.parse(source), package):
        top, _, rest = name.partition(".")
        other = rest.split(".")[0]
        if top == "app":
            wrong = other in PARTS and other != part and other not in may and (file, other) not in EXCEPT
        else:
            foreign = part == "core" and top not in sys.stdlib_module_names | CORE_LIBRARIES
            wrong = foreign or (top in NETWORK and part not in OUTER) or (top in WAITING and part in PURE)
        if wrong:
            found.append(f"app/{file} imports {name}")
    return found


SOURCES = sorted(path.relative_to(APP).as_posix() for path in APP.rglob("*.py"))


@pytest.mark.parametrize("file", [file for file in SOURCES if file != "__init__.py"])
def test_imports_run_one_way(file: str) -> None:
    assert faults(file, (APP / file).read_text()) == []


def test_every_part_is_known() -> None:
    assert set(MAY) == PURE | LEAVES | OUTER
    assert set(MAY) <= PARTS
    assert "compactor" in COMPACTION


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/plan.py", "from app.formats import FORMATS"),
        ("core/plan.py", "import orjson"),
        ("core/plan.py", "import asyncio"),
        ("formats/gemini.py", "from app.strategies.base import Goal"),
        ("strategies/combined.py", "from app import formats"),
        ("strategies/combined.py", "from ..formats import base"),
        ("strategies/combined.py", "import app.compactor"),
        ("summaries/recap.py", "from app.formats.base import Format"),
        ("compactor.py", "def late():\n    from app.edge.relay import Relay"),
        ("compactor.py", "import httpx"),
        ("steps/counting.py", "from redis.asyncio import Redis"),
        ("edge/relay.py", "from app.main import App"),
        ("main.py", "from app.cli import cli"),
        ("records.py", "from app.core.view import View"),
        ("registry.py", "from app.formats import FORMATS"),
        ("settings/policy.py", "from app.registry import Registry"),
    ],
)
def test_a_wrong_import_is_found(file: str, source: str) -> None:
    assert faults(file, source) != []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("edge/operations.py", "if TYPE_CHECKING:\n    from app.main import App"),
        ("edge/server.py", "def build():\n    from app.main import App"),
        ("cli.py", "from app import __version__"),
        ("core/plan.py", "from app.core.view import View\nimport msgspec"),
        ("formats/gemini.py", "from .base import Format\nfrom app.core.view import Facts"),
    ],
)
def test_a_right_import_is_not(file: str, source: str) -> None:
    assert faults(file, source) == []


PROJECT = tomllib.loads((APP.parent / "pyproject.toml").read_text())["project"]
NEEDED = PROJECT["dependencies"]
OPTIONAL = [name for extra, names in PROJECT["optional-dependencies"].items() if extra != "dev" for name in names]


def dashed(names: list[str]) -> set[str]:
    """The distributions that these requirements name, in their normal spelling."""
    return {re.split(r"[^\w.-]", name)[0].lower().replace("_", "-") for name in names}


@pytest.mark.parametrize(
    ("folder", "declared"),
    [("app", NEEDED + OPTIONAL), ("deploy", NEEDED), ("tests", NEEDED + PROJECT["optional-dependencies"]["dev"])],
    ids=["app", "deploy", "tests"],
)
def test_every_library_is_declared(folder: str, declared: list[str]) -> None:
    sources = (APP.parent / folder).rglob("*.py")
    modules = {name.split(".")[0] for path in sources for name in imported(ast.parse(path.read_text()), "app")}
    own = {"app", "bench", "deploy", "tests"} | {path.stem for path in (APP.parent / "bench").glob("*.py")}
    foreign = modules - sys.stdlib_module_names - own - {"pydantic_core"}  # pydantic's other half, in step with it
    homes = packages_distributions()
    assert {name for name in foreign if dashed(declared).isdisjoint(dashed(homes.get(name, [name])))} == set()
