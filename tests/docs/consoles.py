"""Console blocks of the documentation: `$ command` lines and what they print, run for real.

A block is fenced as ```console. Its commands run one after the other in a bash, in the project's folder, with this Python's programs in the
place of `.venv/bin`; what they print has to be what the page shows. After a change that alters that, this writes the blocks anew:

    python -m tests.docs.consoles
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, pages

_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
_OF_THE_MOMENT = re.compile(r"compaction_\w+/\w+")
"""The address of an archive: its name has the time in it, and its capability is random."""


def all_blocks() -> list[tuple[str, str]]:
    """(page, block) for every console block there is."""
    return [
        (path.relative_to(ROOT).as_posix(), block)
        for path in pages()
        for block in _BLOCK.findall(path.read_text(encoding="utf-8"))
    ]


def steady(text: str) -> str:
    """The text without what differs from run to run, and without white space at the ends of lines."""
    return "\n".join(line.rstrip() for line in _OF_THE_MOMENT.sub("compaction_…", text).splitlines())


def commands(block: str) -> list[str]:
    """Each with its continuation lines, which begin with `> `."""
    return re.findall(r"^\$ (.*(?:\n> .*)*)$", block, re.MULTILINE)


def run(block: str) -> str:
    """The block as it comes out now."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTD_")}
    shown = []
    for command in commands(block):
        line = command.replace("\n> ", "\n").replace(".venv/bin/", "")
        told = subprocess.run(
            ["bash", "-c", line], cwd=ROOT, env={**environment, "PATH": path, "COLUMNS": "120"},
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        shown.append(f"$ {command}\n{told.stdout}{told.stderr}")
    return "".join(shown)


def rewrite(path: Path) -> bool:
    """Write a page's console blocks anew, unless nothing but the moment has changed. Was anything written?"""
    text = path.read_text(encoding="utf-8")

    def again(found: re.Match[str]) -> str:
        now = run(found[0])
        return found[0] if steady(now) == steady(found[0]) else now

    new = _BLOCK.sub(again, text)
    if new != text:
        path.write_text(new, encoding="utf-8")
    return new != text


if __name__ == "__main__":
    for page in pages():
        if rewrite(page):
            print(f"{page.relative_to(ROOT)}: written anew")
