"""Words that stand for secrets and for what users say, sent every way there is, and looked for everywhere they must not be.

A real `compactd serve`, at the chattiest log level, in good days and bad: compacted, replayed, summarised, refused by the provider with the
user's own words, answered by nobody, unreadable, with a strategy that fails and an archive that can't be written.
"""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.edge.processes import Process, process
from tests.edge.talks import KEYS, MODELS, Talk
from tests.edge.wire import PATHS
from tests.strict.answers import Reply
from tests.strict.server import Rejection, StrictProvider

CANARY = re.compile(r"CANARY-[a-z]+")
SAID = {
    name: f"CANARY-{name}"
    for name in ("system", "prompt", "result", "argument", "tool", "user", "answer", "broken", "query")
}
OWN = {name: f"CANARY-own{name}" for name in ("key", "token", "header", "client")}
POLICIES: list[dict[str, Any]] = [
    {"name": "clear", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1},
    {"name": "summary", "strategy": "summarize", "trigger_threshold": 500, "target_threshold": 100, "keep_recent_messages": 1},
    {"name": "leaky", "strategy": "tests.security.leaky:compact", "trigger_threshold": 500},
    {"name": "cap", "strategy": "sliding_window", "max_tool_result_tokens": 50},
]  # fmt: skip
SYSTEM: dict[str, dict[str, Any]] = {
    "openai-chat": {}, "openai-responses": {"instructions": SAID["system"]}, "anthropic-messages": {"system": SAID["system"]},
    "gemini": {"systemInstruction": {"parts": [{"text": SAID["system"]}]}},
}  # fmt: skip


def body(form: str, about: str = "") -> dict[str, Any]:
    talk = Talk(form).ask(f"{SAID['prompt']} Read all of it. {about}").rounds(8, f"{SAID['result']} of a file\n" * 100)
    talk.say(f"{SAID['argument']} done.").ask(f"{SAID['prompt']} And now?")
    named = {"metadata": {"user_id": SAID["user"]}} if form == "anthropic-messages" else {}
    named |= {"prompt_cache_key": SAID["user"]} if form.startswith("openai") else {}
    return {**talk.body, **SYSTEM[form], **named}


def headers(form: str, policy: str, number: int) -> dict[str, str]:
    lines = [line.replace(" k", f" CANARY-key{'abcdefgh'[number % 8]}") for line in KEYS[form]]
    return dict(line.split(": ", 1) for line in lines) | {"x-compactd-policy": policy, "x-team": "CANARY-header"}


async def through_everything(compactd: Process, provider: StrictProvider) -> list[httpx.Response]:
    """All ways for words to get lost; the answers that were compactd's own."""
    own = []
    for number, form in enumerate(MODELS):
        path = f"{PATHS[form]}?key=CANARY-query&x=CANARY-query"
        for policy in ("clear", "summary", "leaky", "cap"):
            for rejecting in (False, False, True):
                provider.reject = (lambda _: Rejection(400, f"Can't read: {SAID['prompt']}")) if rejecting else None
                await compactd.http.post(
                    path, json=body(form, f"{policy} {rejecting}"), headers=headers(form, policy, number)
                )
        provider.reject = None
        for content in (
            f'{{"model": "{SAID["broken"]}", "messages": [}}'.encode(),
            f'{{"messages": ["{SAID["broken"]}\\ud800"], "input": [7], "contents": {{}}}}'.encode(),
            json.dumps(body(form)).encode()[:-9] + b"\xff\xfe",
            b'{"messages": ' + b"[" * 5_000 + SAID["broken"].encode(),
        ):
            await compactd.http.post(path, content=content, headers=headers(form, "clear", number))
        dead = path if form != "gemini" else path.replace("/v1beta", "/dead/v1beta")
        dead = dead if form == "gemini" else f"/dead{dead}"
        own.append(await compactd.http.post(dead, json=body(form), headers=headers(form, "clear", number)))
        own.append(await compactd.http.post(f"/paid{path}", json=body(form), headers=headers(form, "clear", number)))
        own.append(await compactd.http.post(path, json=body(form), headers=headers(form, "nosuch", number)))
        own.append(await compactd.http.post(f"/%2e%2e{path}", json=body(form), headers=headers(form, "clear", number)))
    return own


def found(text: str) -> set[str]:
    return set(CANARY.findall(text))


def title(pid: int) -> str:
    """What `ps` shows of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text()


def look_into(folder: Path) -> None:
    """Of the store: its names and keys hold no word, and no credential is anywhere in it. Of files: their names."""
    with sqlite3.connect(folder / "store.db") as store:
        tables = [name for (name,) in store.execute("select name from sqlite_master where type = 'table'")]
        rows = [row for table in tables for row in store.execute(f"select * from {table}")]
    assert len(rows) > 8
    assert found(" ".join(str(value) for row in rows for value in row if isinstance(value, str))) == set()
    assert not re.search(rb"CANARY-(key|own|query|header)", (folder / "store.db").read_bytes())
    for name in folder.rglob("*"):
        assert not CANARY.search(name.name)


@pytest.fixture
def sections(tmp_path: Path) -> dict[str, Any]:
    return {
        "store": {"url": f"sqlite:///{tmp_path}/store.db"},
        "policies": POLICIES,
        "admin": {"token": OWN["token"]},
        "auth": {"keys": [OWN["client"]]},
        "log": {"level": "debug", "format": "json"},
    }


@pytest.mark.parametrize("archive", ["store", "directory"])
async def test_no_word_of_a_user_and_no_secret_is_where_it_must_not_be(
    archive: str, sections: dict[str, Any], tmp_path: Path
) -> None:
    provider = StrictProvider(answer=lambda *_: Reply(f"{SAID['answer']} It is about {SAID['prompt']}."))
    if archive == "directory":  # that can't be written to
        (tmp_path / "file").write_text("")
        sections["archive"] = {"url": f"file://{tmp_path}/file/inside"}
    async with provider.serve() as url:
        formats = list(MODELS)
        upstreams = {
            "provider": {"base_url": url, "formats": formats},
            "dead": {"base_url": "http://127.0.0.1:9", "formats": formats},
            "paid": {"base_url": url, "formats": formats, "api_key": OWN["key"], "headers": {"x-own": OWN["header"]}},
        }
        async with process(tmp_path, upstreams=upstreams, **sections) as compactd:
            own = await through_everything(compactd, provider)
            assert {answer.status_code for answer in own} >= {401, 502, 400}
            assert [found(answer.text) for answer in own] == [set()] * len(own)

            metrics = (await compactd.http.get("/metrics")).text
            assert "compactd_requests_total" in metrics
            assert found(metrics) == set()

            assert found(title(compactd.running.pid)) == set()

            for path in (
                "",
                "api/sessions",
                "api/compactions",
                "api/archives",
                "api/config",
                "api/openapi.json",
                "console/console.js",
            ):
                assert found((await compactd.http.get(f"/compactd/{path}")).text) == set()
            admin = {"authorization": f"Bearer {OWN['token']}"}
            for path in ("sessions", "compactions", "archives", "config"):
                answer = await compactd.http.get(f"/compactd/api/{path}", headers=admin)
                assert answer.status_code == 200
                assert found(answer.text) == set()
            if archive == "store":  # with rights, and only so, the words can be read back
                ident = (await compactd.http.get("/compactd/api/archives", headers=admin)).json()["archives"][0]["id"]
                assert found((await compactd.http.get(f"/compactd/api/archives/{ident}", headers=admin)).text)
                assert (await compactd.http.get(f"/compactd/api/archives/{ident}")).status_code == 401
        lines = compactd.log.read_text()
    happened = (
        "compacted",
        "replayed",
        "own_strategy_failed",
        "ValueError",
        "refused_either_way",
        "not_json",
        "502",
    )
    assert [word for word in happened if word not in lines] == []
    assert ("archive_failed" in lines) == (archive == "directory")
    assert found(lines) == set()
    assert "Traceback" not in lines
    assert len(provider.requests) > 60

    look_into(tmp_path)
