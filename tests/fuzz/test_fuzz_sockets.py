"""Some hundred cases of the socket fuzzer for every run; the many are for `python -m tests.fuzz.fuzz_sockets`."""

from __future__ import annotations

from tests.fuzz.fuzz_sockets import run

COUNT = 500


async def test_spoiled_bytes_break_no_promise() -> None:
    broken, told = await run(range(COUNT))
    assert broken == {}
    assert told["cases"] == COUNT
    assert told["provider was asked"] > COUNT / 10
    assert told["200"] > COUNT / 50
    assert told["400"] > COUNT / 10
