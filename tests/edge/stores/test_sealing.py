from __future__ import annotations

import os

import pytest

from app.edge.stores.sealing import Seal, key_id
from app.errors import Unreadable

KEY = os.urandom(32)


@pytest.mark.parametrize("size", [16, 24, 32])
def test_it_opens_what_it_sealed(size: int) -> None:
    seal = Seal({"k": os.urandom(size)})
    assert seal.opened(seal.sealed(b"value", b"about"), b"about") == b"value"


def test_no_two_sealings_are_alike_and_none_shows_its_value() -> None:
    sealed = {Seal({"k": KEY}).sealed(b"value", b"") for _ in range(50)}
    assert len(sealed) == 50
    assert not any(b"value" in one for one in sealed)


def test_every_bit_counts() -> None:
    seal = Seal({"k": KEY})
    sealed = seal.sealed(b"value", b"about")
    for at in range(len(sealed)):
        broken = sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :]
        with pytest.raises(Unreadable):
            seal.opened(broken, b"about")


def test_it_says_which_key_it_needs() -> None:
    sealed = Seal({"2026-01": KEY}).sealed(b"value", b"")
    assert key_id(sealed) == "2026-01"
    with pytest.raises(Unreadable, match="2026-01"):
        Seal({"2026-02": KEY}).opened(sealed, b"")
