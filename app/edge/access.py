"""Who may see compactd's own pages, decided before anything of a request is read, and what browsers may do with them.

Health is open; an archive's address is its own key (`archive.access: link`); everything else needs the admin token, or no token at all
while nobody but this machine can ask: bound to loopback, under a loopback name (a web page that points its own name here by DNS rebinding
still sends that name), and not handed on by a proxy. No answer allows another origin to read it, to frame it or to load anything from it,
and nothing can be posted from another site.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from app.edge.bodies import ClientGone, take_body
from app.edge.headers import Headers, digest, without_bearer
from app.settings import Settings

HANDED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""What proxies say for whom they ask: then the asker is not on this machine."""
PAGE = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
NOTHING = "default-src 'none'; "
_ALWAYS = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
CONSOLE = "/compactd/"
PIECE, WAITING = 256 << 10, 256 << 20
"""Bytes: a larger answer leaves in such pieces, as its client takes them; and what may wait of all of them together, or many clients that
read slowly would each hold an archive in memory."""


@dataclass(frozen=True, slots=True)
class Denied:
    status: int
    detail: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


def admin_denial(settings: Settings, headers: Headers) -> Denied | None:
    """None for an administrator."""
    token = settings.admin.token
    if token is not None:
        given = without_bearer(headers.get("authorization", ""))
        if hmac.compare_digest(digest(given), digest(token.get_secret_value())):
            return None
        challenge = ((b"www-authenticate", b"Bearer"),)
        return Denied(401, "Send the admin token as `Authorization: Bearer …`.", challenge)
    if not settings.listen.loopback or not _loopback(settings.listen.public_url or "http://localhost"):
        return Denied(403, "Set `admin.token` to use this from other machines.")
    if not _loopback(f"http://{headers.get('host', '')}") or any(name in headers for name in HANDED_ON):
        return Denied(403, "Without `admin.token` this answers under a loopback name only, and to no proxy.")
    return None


def _loopback(url: str) -> bool:
    """Is this host this machine by its very name? Of an address a browser asks no DNS, so nobody can point it elsewhere."""
    name = _hostname(url)
    try:
        return name == "localhost" or ip_address(name or "").is_loopback
    except ValueError:
        return False


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def from_own_machine(settings: Settings, headers: Headers) -> bool:
    """Did this request come to a name of ours, and from no web page but our own? Asked where nobody needs a key though one is spent: a page
    in a browser on this machine may send what it likes, and with a name of its own that points here (DNS rebinding) even read the answer.
    Applications in browser clothes have an origin of their own kind (`app://…`), which no page can take."""

    def ours(url: str) -> bool:
        return _loopback(url) or _hostname(url) == _hostname(settings.public_base)

    if not ours(f"http://{headers.get('host', 'localhost')}"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    return origin != "null" and (not origin.startswith(("http://", "https://")) or ours(origin))


def from_elsewhere(headers: Headers) -> bool:
    """Was this request made by a page of another origin? Browsers say so; other clients say nothing."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host", "")


class Access:
    """ASGI around compactd's own pages (`pages`)."""

    def __init__(self, app: Any, settings: Callable[[], Settings]) -> None:
        self.pages = app
        self._settings = settings
        self._waiting = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        settings, headers, path = self._settings(), Headers(scope["headers"]), scope["path"]
        page = path == CONSOLE or path.startswith(f"{CONSOLE}console/")
        answer = _hardened(send, PAGE if page else NOTHING)
        denied = admin_denial(settings, headers) if _for_admins(settings, path) else None
        if denied is None and scope["method"] not in ("GET", "HEAD") and from_elsewhere(headers):
            denied = Denied(403, "Requests from pages of another origin are not taken.")
        if denied is None and scope["method"] not in ("GET", "HEAD"):
            try:
                chunks, whole = await take_body(receive, settings.limits.max_body_bytes)
            except ClientGone:
                return
            if not whole or sum(map(len, chunks)) > settings.limits.max_body_bytes:
                denied = Denied(413, "The body is over `limits.max_body_bytes`.", ((b"connection", b"close"),))
            receive = _again(b"".join(chunks), receive)
        if denied is None:
            await self.pages(scope, receive, self._in_pieces(answer))
        else:
            await _deny(denied, answer)

    def _in_pieces(self, send: Any) -> Any:
        """Large answers as their clients take them."""
        start: list[dict[str, Any]] = []

        async def in_pieces(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                start.append(message)
                return
            body = message.get("body", b"")
            # The only one that waits may be of any size: a long session's archive has to be readable.
            if start and len(body) > PIECE and self._waiting and self._waiting + len(body) > WAITING:
                await _deny(Denied(503, "Too much is being read here just now; try again.", _LATER), send)
                return
            self._waiting += len(body)
            try:
                while start:
                    await send(start.pop())
                for at in range(0, len(body) or 1, PIECE):
                    more = message.get("more_body", False) or at + PIECE < len(body)
                    await send({**message, "body": body[at : at + PIECE], "more_body": more})
            finally:
                self._waiting -= len(body)

        return in_pieces


_LATER = ((b"retry-after", b"1"), (b"connection", b"close"))


async def _deny(denied: Denied, send: Any) -> None:
    body = json.dumps({"detail": denied.detail}, ensure_ascii=False).encode()
    told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *denied.headers]
    await send({"type": "http.response.start", "status": denied.status, "headers": told})
    await send({"type": "http.response.body", "body": body})


def _for_admins(settings: Settings, path: str) -> bool:
    if path == "/metrics":
        return settings.admin.protect_metrics
    if path.startswith("/compactd/archives/"):
        return settings.archive.access == "admin"
    return path.startswith("/compactd/api")


def _hardened(send: Any, allowed: str) -> Any:
    added = [
        (b"content-security-policy", (allowed + _ALWAYS).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
    ]

    async def hardened(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return hardened


def _again(body: bytes, rest: Any) -> Any:
    """A body that was taken in, to be received once more."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return waiting.pop() if waiting else await rest()

    return receive
