"""What a compaction removes is archived before its note says where; and no sink ever stops a request."""

from __future__ import annotations

import json

from app.edge.stores.memory import MemoryStore
from app.records import Archive
from tests.story import House, Talk, policy, words

RULES = policy()


def grown(talk: Talk, turns: int = 10) -> Talk:
    for n in range(turns):
        talk.answer().ask(f"More {n}. {words(150)}")
    return talk


async def test_an_archive_links_to_the_one_before() -> None:
    house = House()
    talk = Talk.of(10)
    first = await house.decide(talk, RULES)
    second = await house.decide(grown(talk), RULES)
    archives = [await house.archive(outcome) for outcome in (first, second)]
    assert [archive.previous for archive in archives] == ["", archives[0].id]
    items = [[item["index"] for item in json.loads(archive.document)["items"]] for archive in archives]
    assert items == [[*range(16)], [*range(16, 36)]]


async def test_a_policy_without_archives_writes_none() -> None:
    house = House()
    outcome = await house.decide(Talk.of(10), policy(archive_history=False))
    assert (outcome.result, outcome.archive) == ("compacted", "")
    assert (await house.store.archives())[0] == []


async def test_a_sink_that_raises_anything_fails_no_request() -> None:
    class Broken(MemoryStore):
        async def put_archive(self, archive: Archive) -> None:
            raise ValueError(f"this text may quote {archive.session}")

    house = House(store=Broken())
    outcome = await house.decide(Talk.of(10), RULES)
    assert (outcome.result, outcome.archive) == ("compacted", "")
    assert len(house.witness.archives) == 1
    assert "quote" not in str(house.witness.archives)
