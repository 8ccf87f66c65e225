from __future__ import annotations

import logging
import os

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from app.edge.stores import packing
from app.edge.stores.packing import Packing
from app.edge.stores.sealing import Seal
from app.errors import Unreadable

PLAIN = Packing()
OLD, NEW = os.urandom(32), os.urandom(32)
SEALED = Packing(Seal({"old": OLD}))


@given(st.binary(max_size=2_000))
def test_what_goes_in_comes_out_and_never_grows_by_more_than_a_byte(value: bytes) -> None:
    assert PLAIN.unpack(PLAIN.pack(value, "a"), "a") == value
    assert len(PLAIN.pack(value, "a")) <= len(value) + 1


@given(st.binary(max_size=2_000))
def test_sealed_it_comes_out_too_and_grows_by_less_than_forty_bytes(value: bytes) -> None:
    assert SEALED.unpack(SEALED.pack(value, "a"), "a") == value
    assert len(SEALED.pack(value, "a")) < len(value) + 40


def test_text_gets_smaller_also_sealed() -> None:
    value = b'{"role": "user", "content": "hello"}' * 1_000
    for one in (PLAIN, SEALED):
        assert len(one.pack(value, "a")) < len(value) / 50
        assert b"hello" not in SEALED.pack(b"hello", "a")


async def test_large_values_take_the_same_form_off_the_loop() -> None:
    value = os.urandom(packing.OFF_LOOP) + bytes(packing.OFF_LOOP)
    assert await PLAIN.pack_async(value, "a") == PLAIN.pack(value, "a")
    assert await PLAIN.read_async(PLAIN.pack(value, "a"), "a") == value


LONG = PLAIN.pack(b"a" * 1_000 + bytes(range(50)), "a")
FLIPPED = LONG[:-8] + bytes((LONG[-8] ^ 1,)) + LONG[-7:]


@pytest.mark.parametrize(
    "stored", [b"", b"\x07abc", b"\x01not zstd", LONG[:-3], FLIPPED, b"\x02", b"\x02\xff", b"\x02\x03old"]
)
@pytest.mark.parametrize("one", [PLAIN, SEALED])
def test_nonsense_is_unreadable_and_said_once(stored: bytes, one: Packing, caplog: pytest.LogCaptureFixture) -> None:
    one._told.clear()
    with pytest.raises(Unreadable):
        one.unpack(stored, "a")
    assert one.read(stored, "a") is None
    assert one.read(stored, "b") is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LARGEST", 1 << 20)
    with pytest.raises(Unreadable, match="too large"):
        PLAIN.unpack(PLAIN.pack(bytes(2 << 20), "a"), "a")
    endless = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(2 << 20))
    with pytest.raises(Unreadable, match="is"):
        PLAIN.unpack(packing.ZSTD + endless, "a")


class TestRotation:
    def test_the_first_key_writes_and_all_read(self) -> None:
        both = Packing(Seal({"new": NEW, "old": OLD}))
        before = SEALED.pack(b"value", "a")
        after = both.pack(b"value", "a")
        assert both.unpack(before, "a") == both.unpack(after, "a") == b"value"
        with pytest.raises(Unreadable, match=r"^needs the encryption key new, which is not configured$"):
            SEALED.unpack(after, "a")
        with pytest.raises(Unreadable, match=r"^needs the encryption key new, but store.encryption_key is not set$"):
            PLAIN.unpack(after, "a")

    def test_what_was_written_before_there_was_a_key_is_read(self) -> None:
        assert SEALED.unpack(PLAIN.pack(b"value" * 50, "a"), "a") == b"value" * 50

    def test_an_unknown_key_is_a_miss_and_said_once_by_its_name(self, caplog: pytest.LogCaptureFixture) -> None:
        here = Packing(Seal({"new": NEW}))
        for n in range(3):
            assert here.read(SEALED.pack(b"%d" % n, "a"), "a") is None
        assert [record.getMessage() for record in caplog.records] == [
            "a stored record needs the encryption key old, which is not configured: it is passed over, and so will be others like it"
        ]

    def test_a_record_opens_at_its_own_place_only(self) -> None:
        with pytest.raises(Unreadable, match="does not open"):
            SEALED.unpack(SEALED.pack(b"value", "checkpoint a"), "checkpoint b")

    def test_another_key_of_the_same_name_does_not_open_it(self) -> None:
        with pytest.raises(Unreadable, match="does not open"):
            Packing(Seal({"old": NEW})).unpack(SEALED.pack(b"value", "a"), "a")
