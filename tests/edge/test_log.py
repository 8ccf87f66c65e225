"""Log lines: one JSON object each, uvicorn's words and other libraries' through the same pipe, broken streams in silence."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.contextvars import clear_contextvars

from app.edge import log
from app.edge.metrics import Metrics
from app.edge.record import RequestRecorder
from app.settings import Settings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Err = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    clear_contextvars()
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(capsys: Err) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def logging_as(**options: str) -> Settings:
    return Settings(log=options)


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_requests_events_have_its_id(form: str, capsys: Err) -> None:
    log.configure(logging_as(format=form))
    recorder = RequestRecorder(Metrics(CollectorRegistry()))

    def one() -> str:
        record = recorder.begin()
        recorder.summary_failed("timeout", "extractive")
        recorder.end(record, None)
        return record.id

    ids = [copy_context().run(one) for _ in range(2)]
    recorder.note("store_recovered")
    said = capsys.readouterr().err.splitlines()
    assert [[number in line for number in ids] for line in said] == [[True, False]] * 2 + [[False, True]] * 2 + [
        [False, False]
    ]


def test_an_event_is_one_json_line(capsys: Err) -> None:
    log.configure(logging_as(format="json"))
    structlog.get_logger("compactd").warning(
        "odd_thing", where="here", number=7, text='line one\n"line two" \u20ac', odd=(1, {2})
    )
    (line,) = lines(capsys)
    when = datetime.fromisoformat(line.pop("time"))
    assert abs(datetime.now(UTC) - when) < timedelta(minutes=1)
    assert line.pop("odd")
    assert line == {
        "level": "warning",
        "event": "odd_thing",
        "where": "here",
        "number": 7,
        "text": 'line one\n"line two" \u20ac',
    }


def test_level_is_the_severity_and_nothing_else(capsys: Err) -> None:
    log.configure(logging_as(format="json", level="warning"))
    logger = structlog.get_logger("compactd")
    logger.info("not_wanted")
    logger.error("wanted", compaction_level=2)
    assert [(line["level"], line["event"], line["compaction_level"]) for line in lines(capsys)] == [
        ("error", "wanted", 2)
    ]


def test_other_libraries_speak_json_too(capsys: Err) -> None:
    log.configure(logging_as(format="json"))
    logging.getLogger("uvicorn.error").error("Something %s", "failed")
    logging.getLogger("some.library").warning("mind the gap")
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("uvicorn.access").info("GET /v1/models?key=secret")
    assert [(line["level"], line["event"]) for line in lines(capsys)] == [
        ("error", "Something failed"),
        ("warning", "mind the gap"),
    ]


def test_a_traceback_says_where_and_not_what(capsys: Err) -> None:
    """An exception that uvicorn reports may hold what a user said."""
    log.configure(logging_as(format="json"))
    try:
        raise KeyError("CONFIDENTIAL")
    except KeyError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
    (line,) = lines(capsys)
    assert "CONFIDENTIAL" not in str(line)
    assert line["event"].startswith("Exception in ASGI application")
    assert line["kind"] == "KeyError"
    assert line["at"].startswith("test_log.py:")


@pytest.mark.parametrize(
    "words", ["ASGI callable returned without completing response.", "Unsupported upgrade request."]
)
def test_what_is_meant_to_happen_is_not_reported(capsys: Err, words: str) -> None:
    log.configure(logging_as(format="json"))
    logging.getLogger("uvicorn.error").error(words)
    assert capsys.readouterr().err == ""


def test_auto_is_readable_on_a_terminal_and_json_elsewhere(monkeypatch: pytest.MonkeyPatch, capsys: Err) -> None:
    log.configure(logging_as())
    structlog.get_logger("a").warning("to_a_file")
    assert lines(capsys)[0]["event"] == "to_a_file"
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    log.configure(logging_as())
    structlog.get_logger("b").warning("to_a_person", number=7)
    assert "to_a_person" in screen.getvalue()
    assert not screen.getvalue().startswith("{")


def test_console_is_wanted_wherever_it_goes(capsys: Err) -> None:
    log.configure(logging_as(format="console"))
    structlog.get_logger("c").warning("to_a_person")
    logging.getLogger("uvicorn.error").error("so is this")
    seen = capsys.readouterr().err
    assert "to_a_person" in seen
    assert "so is this" in seen
    assert not seen.startswith("{")
    assert "\x1b" not in seen  # no colours in a file


def test_loggers_that_are_there_already_follow_a_change(capsys: Err) -> None:
    log.configure(logging_as(format="json", level="warning"))
    ours, theirs = structlog.get_logger("compactd"), logging.getLogger("uvicorn.error")
    ours.info("too_quiet")
    ours.warning("first")
    theirs.error("first")
    log.configure(logging_as(format="console", level="info"))
    ours.info("second")
    theirs.error("second")
    said = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["event"] for line in said[:2]] == ["first", "first"]
    assert [("second" in line, line[:1] == "{") for line in said[2:]] == [(True, False)] * 2


ROOT = Path(__file__).parents[2]
VERBS = {"info": "info", "note": "info", "warning": "warning", "warn": "warning", "error": "error"}


def logged_events() -> dict[str, str]:
    """Event -> severity of all that the app logs by name, as its source has it."""
    found = {}
    for file in (ROOT / "app").rglob("*.py"):
        tree = ast.parse(file.read_text())
        words = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                continue
            said = call.args[0]
            name = words.get(said.id) if isinstance(said, ast.Name) else getattr(said, "value", None)
            if call.func.attr in VERBS and isinstance(name, str) and re.fullmatch(r"[a-z]+(_[a-z]+)*", name):
                found[name] = VERBS[call.func.attr]
    return found


def test_the_page_tells_every_event_and_no_other() -> None:
    page = (ROOT / "docs" / "logs.md").read_text().partition("## Other events")[2]
    told = dict(re.findall(r"^\| `(\w+)` \| (\w+) \| ", page, re.MULTILINE))
    assert told == logged_events()
