"""The lists of the console in a Redis: one sorted set each, newest last, bounded in length and life."""

from __future__ import annotations

from app.edge.stores.base import PER_LIST, StoreOptions, cursor_after, cursor_place, page_size
from app.edge.stores.redis_keys import key_of, milliseconds
from app.edge.stores.redis_servers import Call, Servers, call


class Lists:
    """`kind` is what is listed, `of` the session whose list it is, or "" for that of all."""

    def __init__(self, servers: Servers, options: StoreOptions) -> None:
        self._servers = servers
        self._options = options

    def line(self, kind: str, of: str, member: bytes, stamp: float, ttl: float) -> list[Call]:
        """A line is put in, or gets a new stamp; lines past their life and past the bound leave."""
        key = key_of(of, kind)
        return [
            call("zadd", key, {member: stamp}),
            call("zremrangebyscore", key, "-inf", self._options.clock() - ttl),
            call("zremrangebyrank", key, 0, -PER_LIST - 1),
            call("pexpire", key, milliseconds(ttl)),
        ]

    async def page(self, kind: str, of: str, cursor: str, limit: int) -> tuple[list[bytes], str]:
        """Members of one page, newest first, and the cursor of the next. Equal stamps are in the members' order, as in Redis."""
        size, read = page_size(limit), 0
        place = cursor_place(cursor, bytes) if cursor else (float("inf"), b"")
        if place is None:
            return [], ""
        lines: list[tuple[bytes, float]] = []
        while len(lines) <= size:
            [some] = await self._servers.run([
                call("zrevrangebyscore", key_of(of, kind), place[0], "-inf", start=read, num=size + 1, withscores=True),
            ])  # fmt: skip
            read += len(some)
            lines += [(member, stamp) for member, stamp in some if not cursor or (stamp, member) < place]
            if len(some) <= size:
                break
        after = cursor_after(lines[size - 1][1], lines[size - 1][0]) if len(lines) > size else ""
        return [member for member, _ in lines[:size]], after
