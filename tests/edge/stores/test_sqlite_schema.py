from __future__ import annotations

import sqlite3
from dataclasses import fields

from app.edge.stores.sqlite_schema import BULKY, EXPIRING, MIGRATIONS
from app.records import Session


def test_the_steps_make_the_tables_that_the_store_needs() -> None:
    db = sqlite3.connect(":memory:")
    for step in (step for steps in MIGRATIONS for step in steps):
        db.execute(step)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == set(EXPIRING) >= set(BULKY)
    for table in EXPIRING:
        assert "expires" in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}


def test_a_session_has_a_column_for_every_field() -> None:
    """Fails when `Session` gets a field: then the schema needs a new step that adds the column."""
    db = sqlite3.connect(":memory:")
    for step in (step for steps in MIGRATIONS for step in steps):
        db.execute(step)
    columns = {row[1] for row in db.execute("PRAGMA table_info(sessions)")}
    assert columns == {field.name for field in fields(Session)} | {"expires"}
