"""The oracle knows nothing of what it judges."""

from __future__ import annotations

import ast
from pathlib import Path


def test_nothing_here_imports_app() -> None:
    imported: set[str] = set()
    for path in Path(__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).split(".")[0])
    assert "app" not in imported
    assert {"uvicorn", "httpx", "tests"} <= imported
