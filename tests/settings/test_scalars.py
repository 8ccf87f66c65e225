"""Plain text reads as YAML 1.2 would have it."""

from __future__ import annotations

import pytest

from app.settings.scalars import plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("off", "off"), ("yes", "yes"), ("no", "no"), ("y", "y"),
        ("true", True), ("False", False),
        ("", None), ("~", None), ("null", None), ("nil", "nil"),
        ("1", 1), ("-3", -3), ("010", 10), ("1:30", "1:30"), ("1_000", "1_000"), ("0x10", "0x10"),
        ("1.0", 1.0), (".5", 0.5), ("2.", 2.0), ("1e3", 1000.0), ("1.5e-1", 0.15), ("e5", "e5"), ("1e", "1e"), (".", "."),
        (".inf", ".inf"), (".nan", ".nan"), ("2026-01-01", "2026-01-01"), ("1\n", "1\n"),
        ("9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_plain(text: str, value: object) -> None:
    assert plain(text) == value
    assert type(plain(text)) is type(value)
