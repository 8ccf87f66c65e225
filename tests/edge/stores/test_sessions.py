from __future__ import annotations

from dataclasses import fields

import pytest

from app.edge.stores.sessions import KINDS, changed, loaded, session_of, stored
from app.records import Session, SessionChange, UsageMark

MARKS = (UsageMark(b"\xff\x00" * 8, 1, 2),)


def test_every_field_of_a_session_has_a_stored_form() -> None:
    full = Session("s", "t", 1.5, 2.5, "gemini", "m", "combined", 2, "a", 3, 4, 5, 6, 7, 8, 0.5, 1.25, MARKS)
    values = {field.name: stored(field.name, getattr(full, field.name)) for field in fields(Session)}
    assert session_of(values) == full
    as_bytes = {name: str(value).encode() for name, value in values.items()}
    assert session_of(as_bytes) == full
    assert set(values) == set(KINDS)


def test_fields_of_another_version_do_no_harm() -> None:
    assert session_of({"id": "s", "tenant": "t", "mood": b"fine"}) == Session("s", "t")


@pytest.mark.parametrize(
    ("name", "value"), [("requests", b"many"), ("usages", b"[1]"), ("ratio", b""), ("model", b"\xff")]
)
def test_nonsense_is_a_value_error(name: str, value: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        loaded(name, value)


def test_a_change_counts_up_and_replaces() -> None:
    before = Session("s", "t", updated=1.0, requests=1, model="a")
    change = SessionChange(add={"requests": 2, "summary_cost": 0.5}, put={"model": "b", "usages": MARKS})
    after = changed(before, change, now=9.0)
    assert after == Session("s", "t", updated=9.0, requests=3, model="b", summary_cost=0.5, usages=MARKS)
