"""Archives outside the store that are sealed: named so, opened by every key that is configured, and never silently left out."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.archive import HOLDER_BYTES, full_document
from app.cli import cli
from app.edge.archives import open_archives
from app.edge.archives.base import External
from app.edge.stores.memory import MemoryStore
from app.errors import Unreadable
from app.ports import ArchiveSink
from app.records import Archive
from tests.edge.wire import compactd, configured, request

NAME = "compaction_s_20260102T030405Z_1_abcd"
DOCUMENT = {"id": NAME, "session": "s", "previous": "", "items": [{"index": 3, "item": "canary " * 50}]}
ARCHIVE = Archive(NAME, "c" * 32, "tenant", "s", 1_770_000_000.25, "", json.dumps(DOCUMENT).encode())
OLD, NEW = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))
Opened = Callable[..., External]


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        request.getfixturevalue("s3")
        return f"s3://bucket/{tmp_path.name}"
    return f"file://{tmp_path}/archives"


@pytest.fixture
def opened(url: str) -> Opened:
    """A sink there, with this encryption key."""

    def open_(key: str = "") -> External:
        sink = open_archives(url, MemoryStore(), key)
        assert isinstance(sink, External)
        return sink

    return open_


async def words_in(sink: ArchiveSink, name: str = NAME) -> Any:
    found = await sink.get_archive(name)
    return found and json.loads(found.document)


async def test_it_is_named_so_and_lies_there_unreadable(opened: Opened) -> None:
    await opened(OLD).put(ARCHIVE)
    assert await opened()._read(f"{NAME}.json") is None
    lying = await opened()._read(f"{NAME}.json.sealed")
    assert lying is not None
    assert not any(word in lying for word in (b"canary", b"tenant", b"session", b"c" * 32))
    found = await opened(OLD).get_archive(NAME)
    assert found is not None
    assert (replace(found, document=b""), json.loads(found.document)) == (replace(ARCHIVE, document=b""), DOCUMENT)


async def test_keys_are_replaced_one_by_one(opened: Opened) -> None:
    await opened(f"old:{OLD}").put(ARCHIVE)
    assert await words_in(opened(f"new:{NEW},old:{OLD}")) == DOCUMENT
    await opened(f"new:{NEW},old:{OLD}").put(replace(ARCHIVE, id="later"))
    assert await words_in(opened(f"new:{NEW}"), "later") == DOCUMENT
    with pytest.raises(Unreadable, match=r"^needs the encryption key old, which is not configured$"):
        await words_in(opened(f"new:{NEW}"))


async def test_without_a_key_it_is_told_and_not_missing(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    await opened(f"old:{OLD}").put(ARCHIVE)
    with pytest.raises(Unreadable, match=r"^needs the encryption key old, but store\.encryption_key is not set$"):
        await words_in(opened())
    assert "needs the encryption key old" in caplog.text


async def test_what_was_written_before_there_was_a_key_stays_readable(opened: Opened) -> None:
    await opened().put(ARCHIVE)
    assert json.loads(await opened()._read(f"{NAME}.json") or b"")["items"] == DOCUMENT["items"]
    assert await words_in(opened(OLD)) == DOCUMENT


async def test_it_opens_under_its_own_name_only(opened: Opened) -> None:
    await opened(f"old:{OLD}").put(ARCHIVE)
    lying = await opened()._read(f"{NAME}.json.sealed")
    assert lying is not None
    for name, text in (("other", lying), ("cut", lying[:-1]), ("empty", b""), ("plain", b"{}")):
        await opened()._write(f"{name}.json.sealed", text)
        with pytest.raises(Unreadable):
            await words_in(opened(f"old:{OLD}"), name)


async def test_a_whole_says_what_of_it_can_not_be_opened(opened: Opened) -> None:
    await opened(f"old:{OLD}").put(ARCHIVE)
    document = {**DOCUMENT, "id": "later", "previous": NAME, "items": [{"index": 4, "item": "and then"}]}
    later = replace(ARCHIVE, id="later", previous=NAME, document=json.dumps(document).encode())
    await opened(f"new:{NEW}").put(later)
    for key, indexes, told in (
        (f"new:{NEW},old:{OLD}", [3, 4], None),
        (f"new:{NEW}", [4], f"{NAME} needs the encryption key old, which is not configured"),
    ):
        found = await full_document(opened(key), later)
        assert ([item["index"] for item in found["items"]], found.get("unreadable")) == (indexes, told)


async def test_over_http(url: str) -> None:
    for key, status, detail in ((OLD, 200, None), (None, 503, "This archive is sealed with a key that is not here")):
        given = configured(
            "http://127.0.0.1:9",
            admin={"token": "token"},
            archive={"url": url},
            store={"url": "memory://", "encryption_key": key},
        )
        async with compactd(given) as proxy:
            if key:
                await proxy.app.archives.put(ARCHIVE)
            for path in (f"/compactd/archives/{NAME}/{'c' * 32}", f"/compactd/api/archives/{NAME}"):
                answer = await proxy.ask(request("GET", path, "authorization: Bearer token"))
                told = json.loads(answer.body)
                assert answer.status == status
                assert told["detail"].startswith(detail) if detail else told == DOCUMENT


@pytest.mark.parametrize("earlier", [False, True], ids=["now", "of an earlier version"])
async def test_a_stranger_does_not_learn_that_there_is_one_whose_key_is_missing(
    url: str, opened: Opened, earlier: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await opened(f"old:{OLD}").put(ARCHIVE)
    if earlier:
        lying = await opened()._read(f"{NAME}.json.sealed") or b""
        await opened()._write(f"{NAME}.json.sealed", lying[1 + HOLDER_BYTES :])
        assert await words_in(opened(f"old:{OLD}")) == DOCUMENT
    given = configured("http://127.0.0.1:9", admin={"token": "token"}, archive={"url": url}, store={"url": "memory://"})
    async with compactd(given) as proxy:

        async def asked(path: str, *headers: str) -> tuple[int, bytes]:
            answer = await proxy.ask(request("GET", path, *headers))
            return answer.status, answer.body

        unknown = await asked(f"/compactd/archives/no-such/{'c' * 32}")
        assert unknown[0] == 404
        assert await asked(f"/compactd/archives/{NAME}/{'d' * 32}") == unknown
        assert "needs the encryption key old" in caplog.text
        mine, _ = await asked(f"/compactd/archives/{NAME}/{'c' * 32}")
        assert mine == (404 if earlier else 503)
        admins, told = await asked(f"/compactd/api/archives/{NAME}", "authorization: Bearer token")
        assert (admins, b"sealed with a key that is not here" in told) == (503, True)


def test_on_the_command_line(url: str, tmp_path: Path) -> None:
    asyncio.run(_put(open_archives(url, MemoryStore(), f"old:{OLD}")))
    config = tmp_path / "compactd.yaml"
    for key, code, told in (
        (f"old:{OLD}", 0, "canary"),
        (f"new:{NEW}", 1, "The archive needs the encryption key old, which is not configured."),
        (None, 1, "The archive needs the encryption key old, but store.encryption_key is not set."),
    ):
        config.write_text(json.dumps({"store": {"url": "memory://", "encryption_key": key}, "archive": {"url": url}}))
        shown = CliRunner().invoke(cli, ["archive", "show", NAME, "-c", str(config)])
        assert (shown.exit_code, told in shown.output) == (code, True)


async def _put(sink: ArchiveSink) -> None:
    await sink.put(ARCHIVE)


handed: list[Any] = []


def keep(items: list[Any]) -> None:
    handed.append(items)


async def test_own_code_gets_the_plain_list_all_the_same() -> None:
    await open_archives(f"{__name__}:keep", MemoryStore(), OLD).put(ARCHIVE)
    assert handed == [["canary " * 50]]
