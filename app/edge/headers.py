"""Headers on their way through: which stay here, which are put right, which are added.

Lists of pairs, never dicts: order and repeats reach the other side as they came. Hop-by-hop headers are those of RFC 9110 section 7.6.1 and
whatever the `Connection` header names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qs

from app.formats import FORMATS
from app.formats.base import Target
from app.settings import Upstream
from app.settings.options import CREDENTIAL_HEADERS

Pair = tuple[bytes, bytes]
_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
     b"transfer-encoding", b"upgrade", b"http2-settings")
)  # fmt: skip
_REQUEST_OWN = frozenset(
    (b"host", b"content-length", b"expect", b"x-compactd-session", b"x-compactd-policy", b"x-compactd-mode")
)
_OF_ONE_REQUEST = frozenset(
    (b"accept", b"accept-encoding", b"content-type", b"idempotency-key", b"x-stainless-retry-count", b"x-client-request-id",
     b"x-request-id")
)  # fmt: skip
_WITHOUT_BODY = frozenset({204, 304})
_BEARER = re.compile(r"\A\s*bearer\s+", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._:@/-]{1,128}\Z")
_CREDENTIAL_NAMES = frozenset(name.encode() for name in CREDENTIAL_HEADERS)


class Headers(Mapping[str, str]):
    """A request's headers for looking at: lower-case names, the first of repeated ones."""

    def __init__(self, raw: Iterable[Pair]) -> None:
        self._first: dict[bytes, bytes] = {}
        for name, value in raw:
            self._first.setdefault(name, value)

    def __getitem__(self, name: str) -> str:
        return self._first[name.encode("latin-1")].decode("latin-1")

    def get(self, name: str, default: Any = None) -> Any:
        """As in every mapping; written out, because it is asked a dozen times for each request."""
        value = self._first.get(name.encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.encode("latin-1") in self._first

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._first)

    def __len__(self) -> int:
        return len(self._first)


def _named_by_connection(raw: Iterable[Pair]) -> set[bytes]:
    named: set[bytes] = set()
    for name, value in raw:
        if name.lower() == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            named.update(part.strip().lower() for part in value.split(b","))
    return named


def request_headers(
    raw: list[Pair],
    host: bytes,
    length: int | None,
    drop_coding: bool,
    upstream: Upstream,
    target: Target | None,
    fresh: bool = False,
    beta: str = "",
    without_beta: str = "",
    attempt: int = 1,
) -> list[Pair]:
    """A request's headers for the provider. `length` is that of the body, None: not told (no body, or chunked).

    `fresh`: for a request of compactd's own in the client's name, so without what belongs to the client's one. A second `attempt` has
    another body, which must not go under the first one's idempotency key (F4): it gets a key of its own, the same each time.
    """
    drop = _HOP | _REQUEST_OWN | (_OF_ONE_REQUEST if fresh else frozenset())
    named = _named_by_connection(raw)
    if named or drop_coding or upstream.headers or upstream.api_key:
        drop = drop | named | ({b"content-encoding"} if drop_coding else set())
        drop = drop | {name.lower().encode() for name in upstream.headers}
        if upstream.brings_credentials:
            drop = drop | _CREDENTIAL_NAMES
    pairs = [(b"host", host), *((name, value) for name, value in raw if name not in drop)]
    if attempt > 1:
        pairs = [(name, b"%b-%d" % (value, attempt) if name == b"idempotency-key" else value) for name, value in pairs]
    if without_beta:
        pairs = [
            _without_value(pair, without_beta.encode()) if pair[0] == b"anthropic-beta" else pair for pair in pairs
        ]
        pairs = [pair for pair in pairs if pair[0] != b"anthropic-beta" or pair[1]]
    if beta and not any(name == b"anthropic-beta" and beta.encode() in value for name, value in pairs):
        pairs.append((b"anthropic-beta", beta.encode()))
    if fresh:
        pairs.append((b"content-type", b"application/json"))
        versioned = any(name == b"anthropic-version" for name, _ in pairs)
        if target and target.format == "anthropic-messages" and not versioned:
            pairs.append((b"anthropic-version", b"2023-06-01"))
    if length is not None:
        pairs.append((b"content-length", str(length).encode()))
    if upstream.headers or upstream.api_key:
        pairs += [(name.lower().encode(), value.encode()) for name, value in upstream.headers.items()]
        if upstream.api_key:
            name = FORMATS[target.format if target else upstream.formats[0]].auth_header
            key = upstream.api_key.get_secret_value()
            pairs.append((name.encode(), f"Bearer {key}".encode() if name == "authorization" else key.encode()))
    return pairs


def _without_value(pair: Pair, gone: bytes) -> Pair:
    return pair[0], b",".join(part for part in pair[1].split(b",") if part.strip() != gone)


def response_headers(raw: list[Pair], status: int, told: list[Pair]) -> list[Pair]:
    """The provider's headers for the client, with what compactd tells about the request. Of a compactd further on the client hears nothing:
    told twice, a header says neither."""
    named = _named_by_connection(raw)
    if status in _WITHOUT_BODY:
        # A length there would be that of another answer, and the server below us would wait for it.
        named.add(b"content-length")
    pairs = []
    stream = buffering = caching = False
    for name, value in raw:
        low = name.lower()
        if low in _HOP or low in named or low.startswith(b"x-compactd-"):
            continue
        if low == b"content-type":
            stream = value.startswith(b"text/event-stream")
        buffering = buffering or low == b"x-accel-buffering"
        caching = caching or low == b"cache-control"
        pairs.append((low, value))
    if stream:
        if not buffering:
            pairs.append((b"x-accel-buffering", b"no"))
        if not caching:
            pairs.append((b"cache-control", b"no-cache"))
    return pairs + told


def credentials(headers: Headers, query: bytes) -> list[str]:
    """The keys that came with a request, without their `Bearer`."""
    given = [headers.get(name, "") for name in CREDENTIAL_HEADERS]
    if b"key=" in query:
        given += parse_qs(query.decode("latin-1")).get("key", [])
    return [without_bearer(key) for key in given if key]


def without_bearer(value: str) -> str:
    """The key in an `Authorization` header's value; schemes may be written in either case."""
    return _BEARER.sub("", value).strip()


def credentials_hash(headers: Headers, query: bytes) -> str:
    """The tenant: a hash of all credentials that came with the request, "anonymous" without any."""
    given = credentials(headers, query)
    return digest("\n".join(given)).hex() if given else "anonymous"


def digest(secret: str) -> bytes:
    """24 bytes that stand for a credential wherever it has to be compared or kept."""
    return blake2b(secret.encode("utf-8", "surrogateescape"), digest_size=24, person=b"compactd-tenant").digest()


def without_key(query: bytes) -> bytes:
    """The query without the client's own key, which must not reach a provider that compactd has a key for."""
    return b"&".join(part for part in query.split(b"&") if not part.startswith(b"key="))


def own_query(query: bytes, keyed: bool) -> bytes:
    """The client's query, `?` included, for a call of compactd's own: one that wants no stream, and no key of the client's where compactd
    brings one (`keyed`)."""
    kept = [part for part in query.split(b"&") if part and not part.startswith((b"alt=", b"$alt=", b"%24alt="))]
    kept = [part for part in kept if not (keyed and part.startswith(b"key="))]
    return b"?" + b"&".join(kept) if kept else b""


def session_name(headers: Headers, hint: str) -> str:
    """The session as the client names it, "" if it does not: its own header as it is, a hint (which may say who somebody is) as a hash."""
    named: str = headers.get("x-compactd-session", "")
    if _PLAIN_NAME.match(named):
        return named
    hint = named or hint or headers.get("session_id", "") or headers.get("conversation_id", "")
    return f"s-{blake2b(hint.encode('utf-8', 'replace'), digest_size=10).hexdigest()}" if hint else ""
