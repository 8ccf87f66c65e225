"""What "How it works" says in words is so: the messages it counts, the tests that it names. Its console blocks are run elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

from tests.docs.consoles import steady
from tests.docs.pages import DOCS, ROOT, blocks, page, section

PAGE = page("how-it-works.md")


def test_the_example_has_as_many_messages_as_it_says() -> None:
    roles = [message["role"] for message in json.loads((DOCS / "examples" / "agent.json").read_text())["messages"]]
    told = section(PAGE, "Before and after")
    between = re.search(r"a question, (\d+) messages of work on it, a second question", " ".join(told.split()))
    assert between
    assert roles == ["system", "user", *roles[2:-1], "user"]
    assert len(roles[2:-1]) == int(between[1])
    stands_for = re.search(r"one message stands for the (\d+) between them", " ".join(told.split()))
    assert stands_for
    assert int(stands_for[1]) == len(roles) - 2


def test_the_recap_has_the_parts_that_are_spoken_of() -> None:
    shown = steady(blocks(PAGE, "console")[2])
    assert [
        part for part in ("<compaction_summary>", "## Reference", "compaction_…", "## Now") if part not in shown
    ] == []


def test_the_tests_that_hold_the_promises_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", section(PAGE, "The four promises, and what holds them"))
    assert len(named) > 12
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_promises_are_those_of_the_readme() -> None:
    promise = re.compile(r"\*\*([A-Z][a-z ]+)\.\*\*")
    readme = (ROOT / "README.md").read_text()
    assert promise.findall(section(PAGE, "The four promises, and what holds them")) == promise.findall(readme)[:4]


def test_the_picture_is_sound_and_says_what_it_shows() -> None:
    root = ET.parse(DOCS / "how-it-works.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title") is not None
    assert root.find(f"{space}desc") is not None
    assert "prefers-color-scheme: dark" in (root.findtext(f"{space}style") or "")
    assert not [one for one in root.iter() if one.tag in (f"{space}image", f"{space}script")]


def test_the_made_run_is_the_same_each_time() -> None:
    command = [sys.executable, str(DOCS / "examples" / "agent_run.py"), "3", "2"]
    one, other = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert one == other
    assert [message["role"] for message in json.loads(one)["messages"]].count("tool") == 3
