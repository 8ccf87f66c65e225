from __future__ import annotations

import os

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from app.edge.stores import packing
from app.edge.stores.packing import pack, pack_async, unpack, unpack_async


@given(st.binary(max_size=2_000))
def test_what_goes_in_comes_out_and_never_grows_by_more_than_a_byte(value: bytes) -> None:
    assert unpack(pack(value)) == value
    assert len(pack(value)) <= len(value) + 1


def test_text_gets_smaller() -> None:
    value = b'{"role": "user", "content": "hello"}' * 1_000
    assert len(pack(value)) < len(value) / 50


async def test_large_values_take_the_same_form_off_the_loop() -> None:
    value = os.urandom(packing.OFF_LOOP) + bytes(packing.OFF_LOOP)
    assert await pack_async(value) == pack(value)
    assert await unpack_async(pack(value)) == value


@pytest.mark.parametrize("stored", [b"", b"\x07abc", b"\x01not zstd", pack(b"a" * 1_000)[:-3]])
def test_nonsense_is_a_value_error(stored: bytes) -> None:
    with pytest.raises(ValueError, match="a stored value"):
        unpack(stored)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LARGEST", 1 << 20)
    with pytest.raises(ValueError, match="too large"):
        unpack(pack(bytes(2 << 20)))
    endless = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(2 << 20))
    with pytest.raises(ValueError, match="a stored value"):
        unpack(packing.ZSTD + endless)
