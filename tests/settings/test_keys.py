from __future__ import annotations

import base64
import hashlib

import pytest

from app.settings.keys import encryption_keys

ONE, TWO = (hashlib.sha256(name).digest() for name in (b"one", b"two"))


def written(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_named_keys_keep_their_order() -> None:
    keys = encryption_keys(f"new:{written(TWO)},old:{written(ONE)}")
    assert list(keys.items()) == [("new", TWO), ("old", ONE)]


def test_a_bare_key_is_named_by_its_content_so_that_it_can_be_rotated_out() -> None:
    [(name, key)] = encryption_keys(written(ONE)).items()
    assert key == ONE
    assert list(encryption_keys(f"new:{written(TWO)},{written(ONE)}")) == ["new", name]
    assert written(ONE) not in name


def test_the_letters_of_addresses_are_base64_too() -> None:
    assert encryption_keys(base64.urlsafe_b64encode(ONE).decode()) == encryption_keys(written(ONE))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hunter2", "no base64"),
        (written(b"hunter2"), "of 7 bytes; 32 are wanted"),
        (f"a b:{written(ONE)}", "whose id is not made of"),
        (f"a:{written(ONE)},a:{written(TWO)}", "names two keys alike"),
        (f"a:{written(ONE)},", "number 2, of 0 bytes"),
    ],
)
def test_what_is_no_key_is_told_without_repeating_it(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        encryption_keys(text)
    assert "hunter2" not in str(caught.value)
    assert written(ONE) not in str(caught.value)
