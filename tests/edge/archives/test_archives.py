"""Where archives go: written whole, read back by their address, and harmless where they can't be."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.archive import full_document
from app.cli import cli
from app.compactor import Compactor
from app.edge.archives import directory, open_archives
from app.edge.archives.base import packed, unpacked
from app.edge.archives.directory import DirectoryArchives
from app.edge.stores import SqliteStore
from app.edge.stores.base import StoreOptions
from app.edge.stores.memory import MemoryStore
from app.errors import StoreFailed
from app.ports import ArchiveSink
from app.records import Archive
from app.request import Outcome
from app.steps import archiving
from app.threads import Apart
from tests.edge.wire import compactd, configured, request, until
from tests.story import BASE, House, Talk, policy, sent, texts, words

NAME = "compaction_s_20260102T030405Z_1_abcd"
DOCUMENT = {"id": NAME, "session": "s", "previous": "", "items": [{"index": 3, "item": "ä"}]}
ARCHIVE = Archive(NAME, "c" * 32, "tenant", "s", 1_770_000_000.25, "", json.dumps(DOCUMENT).encode())
handed: list[list[Any]] = []
answers: list[Any] = []


def keep(items: list[Any]) -> Any:
    handed.append(items)
    answer = answers[-1] if answers else None
    if isinstance(answer, BaseException):
        raise answer
    return answer


async def keep_async(items: list[Any]) -> Any:
    return keep(items)


@pytest.fixture(autouse=True)
def _forget() -> None:
    handed.clear()
    answers.clear()


def house_with(sink: ArchiveSink | None, house: House | None = None) -> House:
    house = house or House("They spoke.")
    house.compactor = Compactor(house.guarded, house.writer, house.witness, BASE, archives=sink)
    return house


async def compacted(house: House, talk: Talk | None = None, **more: Any) -> Outcome:
    outcome = await house.decide(talk or Talk.of(8, 200), policy(strategy="summarize", **more))
    assert outcome.result == "compacted"
    return outcome


def id_of(outcome: Outcome) -> str:
    return outcome.archive.split("/")[-2]


@pytest.fixture(params=["store", "file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    if request.param == "s3":
        request.getfixturevalue("s3")
        return f"s3://bucket/{tmp_path.name}"
    return {"store": None, "file": f"file://{tmp_path}/archives%20here"}[request.param]


@pytest.fixture
def place(url: str | None) -> tuple[MemoryStore, Callable[[], ArchiveSink]]:
    store = MemoryStore()
    return store, lambda: open_archives(url, store)


async def test_a_disk_that_hangs_takes_no_thread_from_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six hung writes on a machine with two cores, and nothing was counted any more: no request came through."""
    sink = DirectoryArchives(str(tmp_path), MemoryStore())
    await sink.put(ARCHIVE)
    go = threading.Event()
    monkeypatch.setattr(directory, "_threads", Apart(3))
    monkeypatch.setattr(os, "fsync", lambda _: go.wait(20))
    writing = [asyncio.create_task(sink.put(replace(ARCHIVE, id=f"a{number}"))) for number in range(40)]
    await until(lambda: sum(task.done() for task in writing) == 37)
    async with asyncio.timeout(10):
        assert await asyncio.gather(*(asyncio.to_thread(int, "7") for _ in range(40))) == [7] * 40
    with pytest.raises(StoreFailed, match="get_archive: Busy"):
        await sink.get_archive(NAME)
    go.set()
    told = await asyncio.gather(*writing, return_exceptions=True)
    assert sorted(map(repr, told)) == ["Busy()"] * 37 + ["None"] * 3
    found = await sink.get_archive(NAME)
    assert found is not None
    assert (found.id, found.capability) == (NAME, ARCHIVE.capability)


async def test_an_archive_on_a_disk_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(directory, "SECONDS", 0.05)
    monkeypatch.setattr(Path, "read_bytes", lambda _: go.wait(20))
    with pytest.raises(StoreFailed, match="get_archive: TimeoutError"):
        await DirectoryArchives(str(tmp_path), MemoryStore()).get_archive(NAME)
    go.set()


async def test_what_was_put_is_read_back_whole(place: tuple[MemoryStore, Callable[[], ArchiveSink]]) -> None:
    _, opened = place
    assert await opened().put(ARCHIVE) is None
    found = await opened().get_archive(ARCHIVE.id)
    assert found is not None
    assert replace(found, document=b"") == replace(ARCHIVE, document=b"")
    assert json.loads(found.document) == json.loads(ARCHIVE.document)
    assert await opened().get_archive("compaction_s_20260102T030405Z_1_0000") is None


async def test_lists_come_from_the_store(place: tuple[MemoryStore, Callable[[], ArchiveSink]]) -> None:
    store, opened = place
    await opened().put(ARCHIVE)
    (head,), _ = await store.archives("s")
    assert (head.id, head.capability, head.document) == (ARCHIVE.id, ARCHIVE.capability, b"")


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", ".hidden", "a/b", "", "a\0b", "x" * 300, "ä"])
async def test_no_name_leads_elsewhere(place: tuple[MemoryStore, Callable[[], ArchiveSink]], name: str) -> None:
    assert await place[1]().get_archive(name) is None


async def test_a_compaction_is_read_back_by_its_address(
    place: tuple[MemoryStore, Callable[[], ArchiveSink]],
) -> None:
    store, opened = place
    house = house_with(opened(), House("They spoke.", store=store))
    talk = Talk.of(8, 200)
    first = await compacted(house, talk)
    assert first.archive in texts(first)[0]
    for n in range(8):
        talk.answer().ask(f"More {n}. {words(200)}")
    second = await compacted(house, talk)
    found = await opened().get_archive(id_of(second))
    assert found is not None
    assert second.archive == f"{BASE}/compactd/archives/{found.id}/{found.capability}"
    document = await full_document(opened(), found)
    assert [entry["item"] for entry in document["items"]] == talk.items[:-1]
    assert house.witness.archives == [(opened().name, "ok")] * 2


async def test_a_result_that_was_cut_is_read_back_by_its_address(
    place: tuple[MemoryStore, Callable[[], ArchiveSink]],
) -> None:
    store, opened = place
    house = house_with(opened(), House(store=store))
    talk = Talk().ask("Read.").round(500)
    outcome = await house.decide(talk, policy(max_tool_result_tokens=100))
    address = sent(outcome)[-1]["content"].partition("can be read at: ")[2].partition(" ")[0]
    found = await opened().get_archive(address.split("/")[-2])
    assert found is not None
    assert json.loads(found.document)["items"][0]["item"] == talk.items[-1]


# By address, by the admin API, by the command line


async def test_endpoints_read_what_the_sink_holds(url: str | None) -> None:
    admin = "authorization: Bearer token"
    async with compactd(configured("http://127.0.0.1:9", archive={"url": url}, admin={"token": "token"})) as proxy:
        await proxy.app.archives.put(ARCHIVE)
        by_address = await proxy.ask(request("GET", f"/compactd/archives/{NAME}/{'c' * 32}"))
        assert (by_address.status, json.loads(by_address.body)) == (200, DOCUMENT)
        assert (await proxy.ask(request("GET", f"/compactd/archives/{NAME}/{'d' * 32}"))).status == 404
        assert (await proxy.ask(request("GET", f"/compactd/api/archives/{NAME}"))).status == 401
        by_id = await proxy.ask(request("GET", f"/compactd/api/archives/{NAME}", admin))
        assert json.loads(by_id.body) == DOCUMENT
        listed = json.loads((await proxy.ask(request("GET", "/compactd/api/archives?session=s", admin))).body)
        assert [head["id"] for head in listed["archives"]] == [NAME]
        assert listed["archives"][0]["address"].endswith(f"/compactd/archives/{NAME}/{'c' * 32}")


def test_the_command_line_shows_what_the_sink_holds(url: str | None, tmp_path: Path) -> None:
    config = tmp_path / "compactd.yaml"
    config.write_text(json.dumps({"store": {"url": f"sqlite:///{tmp_path}/store.db"}, "archive": {"url": url}}))

    async def put() -> None:
        store = SqliteStore(tmp_path / "store.db", StoreOptions(timeout=10))
        await open_archives(url, store).put(ARCHIVE)
        await store.close()

    asyncio.run(put())
    run = CliRunner().invoke
    shown = run(cli, ["archive", "show", f"http://x/compactd/archives/{NAME}/{'c' * 32}", "-c", str(config)])
    assert (shown.exit_code, json.loads(shown.stdout)) == (0, DOCUMENT)
    assert NAME in run(cli, ["archive", "list", "-c", str(config)]).stdout
    assert run(cli, ["archive", "show", "nothing", "-c", str(config)]).exit_code == 1


# A directory


async def test_files_are_their_owners_alone_and_never_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "archives"
    sink = DirectoryArchives(str(folder), MemoryStore())
    await sink.put(ARCHIVE)
    await sink.put(ARCHIVE)
    (file,) = folder.iterdir()
    assert file.name == f"{ARCHIVE.id}.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    before = file.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        await sink.put(replace(ARCHIVE, document=b'{"items": []}'))
    assert [path.name for path in folder.iterdir()] == [file.name]
    assert file.read_bytes() == before
    with pytest.raises(ValueError, match="no file name"):
        await sink.put(replace(ARCHIVE, id="../up"))


async def test_a_file_that_is_no_archive_is_none(tmp_path: Path) -> None:
    sink = DirectoryArchives(str(tmp_path), MemoryStore())
    for text in (b"", b"[]", b"{}", b'{"session": 7}', b"\xff", packed(ARCHIVE)[:-9]):
        (tmp_path / "a.json").write_bytes(text)
        assert await sink.get_archive("a") is None
    (tmp_path / "d.json").mkdir()
    with pytest.raises(StoreFailed, match="IsADirectoryError"):
        await sink.get_archive("d")


def test_packing_loses_nothing() -> None:
    found = unpacked(ARCHIVE.id, packed(ARCHIVE))
    assert found is not None
    assert json.loads(found.document) == json.loads(ARCHIVE.document)
    assert (found.tenant, found.created) == (ARCHIVE.tenant, ARCHIVE.created)


# What fails does not fail the request


@pytest.mark.parametrize(
    ("target", "name", "kind"),
    [
        ("file:///proc/version/archives", "file", "NotADirectoryError"),
        ("s3://no-such-bucket/x", "s3", ""),
        (f"{__name__}:keep", "own", "KeyError"),
        (f"{__name__}:keep_async", "own", "KeyError"),
        ("no_such_module:keep", "own", "NotLoadable"),
    ],
)
async def test_a_sink_that_fails_costs_nothing_but_the_archive(
    target: str, name: str, kind: str, request: pytest.FixtureRequest
) -> None:
    if name == "s3":
        request.getfixturevalue("s3")
    answers.append(KeyError("Question 3"))
    house = House("They spoke.")
    house_with(open_archives(target, house.guarded), house)
    outcome = await compacted(house)
    assert outcome.archive == ""
    assert "Reference" not in texts(outcome)[0]
    ((sink, told),) = house.witness.archives
    assert sink == name
    assert told == kind if kind else told.endswith("Error")


async def test_a_sink_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        name, addresses = "own", True

        async def put(self, archive: Archive) -> str | None:  # noqa: ARG002
            await asyncio.sleep(60)
            return None

        async def get_archive(self, archive_id: str) -> Archive | None:  # noqa: ARG002
            return None

    monkeypatch.setattr(archiving, "SINK_SECONDS", 0.02)
    house = house_with(Hanging())
    outcome = await compacted(house)
    assert (outcome.archive, house.witness.archives) == ("", [("own", "TimeoutError")])


async def test_an_object_store_that_is_away_is_told_of_as_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    from app.edge.archives import s3 as module

    monkeypatch.setattr(module, "SECONDS", 0.2)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    sink = open_archives("s3://bucket", MemoryStore())
    with pytest.raises(StoreFailed):
        await sink.get_archive("a")
    with pytest.raises(TimeoutError):
        await sink.put(ARCHIVE)


# Code of the operator's own


@pytest.mark.parametrize("name", ["keep", "keep_async"])
async def test_own_code_gets_the_sanitised_items_and_names_the_address(name: str) -> None:
    answers.append("vault://box/7")
    talk = Talk.of(8, 200)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000}}
    talk.items[2]["content"] = [{"type": "text", "text": "Look."}, picture]
    house = House("They spoke.")
    house_with(open_archives(f"{__name__}:{name}", house.guarded), house)
    outcome = await compacted(house, talk)
    ((*items,),) = handed
    assert [item["role"] for item in items] == [item["role"] for item in talk.items[:-1]]
    assert items[0] == talk.items[0]
    assert items[2]["content"][1]["image_url"]["url"] == "[base64 image data: 3000 bytes, image/png]"
    assert outcome.archive == "vault://box/7"
    assert "can be read in full at: vault://box/7" in texts(outcome)[0]
    (compaction,), _ = await house.store.compactions()
    assert compaction.archive == "vault://box/7"
    again = await house.decide(talk, policy(strategy="summarize"))
    assert (again.result, again.archive, again.body) == ("replayed", "vault://box/7", outcome.body)


async def test_own_address_stands_in_placeholders_too() -> None:
    answers.append("vault://box/8")
    talk = Talk().ask("Read.")
    for _ in range(6):
        talk.round(400)
    house = House()
    house_with(open_archives(f"{__name__}:keep", house.guarded), house)
    outcome = await house.decide(talk, policy(strategy="tool_result_clearing"))
    assert outcome.result == "compacted"
    assert "It can be read at: vault://box/8]" in sent(outcome)[2]["content"]
    assert "compactd/archives" not in outcome.body.decode()


@pytest.mark.parametrize("answer", [None, "", 7, "two\r\nlines", "x" * 3_000])
async def test_without_a_usable_address_none_is_told(answer: Any) -> None:
    answers.append(answer)
    house = House("They spoke.")
    house_with(open_archives(f"{__name__}:keep", house.guarded), house)
    outcome = await compacted(house)
    assert outcome.archive == ""
    assert "Reference" not in texts(outcome)[0]
    assert len(handed) == 1
    assert house.witness.archives == [("own", "ok")]


async def test_what_would_stop_more_than_itself_does_not() -> None:
    for fault in (SystemExit(), asyncio.CancelledError()):
        answers.append(fault)
        house = House("They spoke.")
        house_with(open_archives(f"{__name__}:keep_async", house.guarded), house)
        outcome = await compacted(house)
        assert (outcome.archive, house.witness.archives) == ("", [("own", "Escaped")])


async def test_cut_results_keep_an_address_of_ours_where_the_sink_gives_its_own() -> None:
    answers.append("vault://box/9")
    house = House()
    house_with(open_archives(f"{__name__}:keep", house.guarded), house)
    outcome = await house.decide(Talk().ask("Read.").round(500), policy(max_tool_result_tokens=100))
    assert f"{BASE}/compactd/archives/result_" in sent(outcome)[-1]["content"]
    assert handed == []
    assert house.witness.archives == [("store", "ok")]


async def test_a_prepared_summary_names_the_sinks_own_address() -> None:
    answers.append("vault://box/10")
    house = House("They spoke.")
    house_with(open_archives(f"{__name__}:keep", house.guarded), house)
    rules = policy(strategy="summarize", prepare_threshold=500)
    talk = Talk.of(3, 200)
    assert (await house.decide(talk, rules)).reason == "below_threshold"
    await until(lambda: house.witness.notes)
    talk.answer().ask(words(450)).answer().ask("Now?")
    outcome = await house.decide(talk, rules)
    assert (outcome.result, outcome.archive) == ("compacted", "vault://box/10")
    assert len(handed) == 1
