"""Every relative link and anchor of the documentation leads somewhere, and every page of it can be reached from its index."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, INDEX, ROOT, anchors, links, pages


def broken(page: Path) -> list[str]:
    found = []
    for link in links(page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_its_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One\n\n## What it's for\n")
    (tmp_path / "page.md").write_text(
        "# Page\n[a](other.md) [b](other.md#what-its-for) [c](#page) [d](gone.md) [e](other.md#two) [f](#gone) `[g](no.md)`\n"
        '<img src="gone.svg">\n```text\n[h](no.md)\n```\n'
    )
    assert broken(tmp_path / "page.md") == ["gone.md", "other.md#two", "#gone", "gone.svg"]


def test_the_readme_links_to_the_index() -> None:
    assert "docs/README.md" in links((ROOT / "README.md").read_text(encoding="utf-8"))


def test_every_page_is_reached_from_the_index() -> None:
    found, new = set(), {INDEX}
    while new:
        found |= new
        named = {(page.parent / link.partition("#")[0]).resolve() for page in new for link in links(page.read_text())}
        new = {path for path in named if path.suffix == ".md" and path.is_file()} - found
    lost = [path.name for path in sorted(DOCS.rglob("*.md")) if path not in found]
    assert lost == [], "name these in docs/README.md"
