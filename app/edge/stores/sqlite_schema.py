"""The tables of the embedded store, as the list of steps that made them.

A file says in `migrations` which steps it has seen. A step never changes once released: a new column is a new step.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE checkpoints (
            id INTEGER PRIMARY KEY,
            tenant TEXT NOT NULL,
            key BLOB NOT NULL,
            anchor BLOB NOT NULL,
            depth INTEGER NOT NULL,
            quarantined INTEGER NOT NULL DEFAULT 0,
            expires REAL NOT NULL,
            value BLOB NOT NULL
        )""",
        "CREATE UNIQUE INDEX checkpoints_by_key ON checkpoints (key, tenant)",
        "CREATE INDEX checkpoints_by_anchor ON checkpoints (anchor)",
        "CREATE INDEX checkpoints_by_expiry ON checkpoints (expires)",
        """CREATE TABLE sessions (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            created REAL NOT NULL DEFAULT 0,
            updated REAL NOT NULL DEFAULT 0,
            format TEXT NOT NULL DEFAULT '',
            model TEXT NOT NULL DEFAULT '',
            strategy TEXT NOT NULL DEFAULT '',
            level INTEGER NOT NULL DEFAULT 0,
            last_archive TEXT NOT NULL DEFAULT '',
            requests INTEGER NOT NULL DEFAULT 0,
            compactions INTEGER NOT NULL DEFAULT 0,
            rejections INTEGER NOT NULL DEFAULT 0,
            tokens_cleared INTEGER NOT NULL DEFAULT 0,
            summary_input_tokens INTEGER NOT NULL DEFAULT 0,
            summary_output_tokens INTEGER NOT NULL DEFAULT 0,
            summary_cost REAL NOT NULL DEFAULT 0,
            ratio REAL NOT NULL DEFAULT 0,
            usages TEXT NOT NULL DEFAULT '',
            expires REAL NOT NULL,
            UNIQUE (id, tenant)
        )""",
        "CREATE INDEX sessions_by_update ON sessions (updated)",
        "CREATE INDEX sessions_by_expiry ON sessions (expires)",
        """CREATE TABLE archives (
            id TEXT NOT NULL UNIQUE,
            capability TEXT NOT NULL,
            tenant TEXT NOT NULL,
            session TEXT NOT NULL,
            created REAL NOT NULL,
            previous TEXT NOT NULL,
            expires REAL NOT NULL,
            document BLOB NOT NULL
        )""",
        "CREATE INDEX archives_by_session ON archives (session, created)",
        "CREATE INDEX archives_by_creation ON archives (created)",
        "CREATE INDEX archives_by_expiry ON archives (expires)",
        """CREATE TABLE compactions (
            id TEXT NOT NULL UNIQUE,
            session TEXT NOT NULL,
            created REAL NOT NULL,
            expires REAL NOT NULL,
            record TEXT NOT NULL
        )""",
        "CREATE INDEX compactions_by_session ON compactions (session, created)",
        "CREATE INDEX compactions_by_creation ON compactions (created)",
        "CREATE INDEX compactions_by_expiry ON compactions (expires)",
        "CREATE TABLE leases (name TEXT PRIMARY KEY, token TEXT NOT NULL, expires REAL NOT NULL)",
    ),
)

EXPIRING = ("checkpoints", "sessions", "archives", "compactions", "leases")
"""Tables with an `expires` column (epoch seconds)."""

BULKY = ("archives", "checkpoints")
"""Tables that give way when the file reaches its bound, in this order."""
