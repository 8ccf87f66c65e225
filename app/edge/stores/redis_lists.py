"""The lists of the console in a Redis: sorted sets, newest last, bounded in length and life. A list that everybody's requests touch is in
parts, on several servers of a cluster; a page is merged from all of them.
"""

from __future__ import annotations

import itertools
from typing import Any

from app.edge.stores.base import PER_LIST, StoreOptions, cursor_after, cursor_place, page_size
from app.edge.stores.redis_keys import list_keys, milliseconds, part_of
from app.edge.stores.redis_servers import Call, Servers, call


class Lists:
    """`kind` is what is listed, `of` the session whose list it is, or "" for that of all."""

    def __init__(self, servers: Servers, options: StoreOptions) -> None:
        self._servers = servers
        self._options = options

    def line(self, kind: str, of: str, member: bytes, stamp: float, ttl: float) -> list[Call]:
        """A line is put in, or gets a new stamp; lines past their life and past the bound leave."""
        keys = list_keys(kind, of)
        key = keys[part_of(member, len(keys))]
        return [
            call("zadd", key, {member: stamp}),
            call("zremrangebyscore", key, "-inf", self._options.clock() - ttl),
            call("zremrangebyrank", key, 0, -max(PER_LIST // len(keys), 1) - 1),
            call("pexpire", key, milliseconds(ttl)),
        ]

    async def page(self, kind: str, of: str, cursor: str, limit: int) -> tuple[list[bytes], str]:
        """Members of one page, newest first, and the cursor of the next. Equal stamps are in the members' order, as in Redis."""
        size = page_size(limit)
        place = cursor_place(cursor, bytes) if cursor else (float("inf"), b"")
        if place is None:
            return [], ""
        read = dict.fromkeys(list_keys(kind, of), 0)  # key -> lines of it; those that may have more to give
        found: dict[str, list[tuple[float, bytes]]] = {key: [] for key in read}
        while read:
            told: list[Any] = await self._servers.run([
                call("zrevrangebyscore", key, place[0], "-inf", start=start, num=size + 1, withscores=True)
                for key, start in read.items()
            ])  # fmt: skip
            for key, some in zip(list(read), told, strict=True):
                read[key] += len(some)
                found[key] += [(stamp, member) for member, stamp in some if not cursor or (stamp, member) < place]
                if len(some) <= size or len(found[key]) > size:
                    del read[key]
        lines = sorted(itertools.chain(*found.values()), reverse=True)
        after = cursor_after(*lines[size - 1]) if len(lines) > size else ""
        return [member for _, member in lines[:size]], after
