"""The documentation as tests see it: pages, their code blocks by language, their headings' anchors, their links."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every Markdown page of the project, with those beside the code."""
    found = (path for glob in ("*.md", "docs/**/*.md", "deploy/**/*.md", "bench/*.md") for path in ROOT.glob(glob))
    return sorted(path for path in found if "node_modules" not in path.parts)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a page in this language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", text)


def section(text: str, heading: str) -> str:
    """What stands under a heading of the second level. Raises ValueError where there is none."""
    found = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"there is no section {heading!r}")
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {at for at, row in enumerate(cells) if all(re.fullmatch(r":?-+:?", cell) for cell in row)}
    return [row for at, row in enumerate(cells) if at not in rules and at + 1 not in rules]


def anchors(text: str) -> set[str]:
    """What `#…` may name in a page: its headings, spelled the way GitHub spells them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.*?) *$", prose(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = found.get(name, 0)
        found[name] = count + 1
        if count:
            found[f"{name}-{count}"] = 1
    return set(found)


def links(text: str) -> list[str]:
    """The relative targets of a page's links and pictures."""
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(text)))
    targets += re.findall(r'(?:src|srcset|href)="([^"]+)"', prose(text))
    return [target for target in targets if "://" not in target and not target.startswith("mailto:")]
