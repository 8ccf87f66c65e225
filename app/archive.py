"""What an archive of removed items is: sanitised, linked to the one before, readable by an address that nobody can guess. When one is
written is `app.steps.archiving`, where to `app.edge.archives`.

The address is part of a note and therefore of a prefix that has to stay byte-stable, so its secret part is derived, not drawn: from
the tenant's credentials and the conversation itself. Who could compute it already holds all that it protects.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from app.core import jsonspan
from app.core.jsonspan import Slice
from app.errors import Unreadable
from app.records import Archive

LONG = 400
"""Characters: shorter base64 stays as it is."""
_BASE64 = re.compile(rf"[A-Za-z0-9+/_-]{{{LONG},}}={{0,2}}")
_DATA_URL = re.compile(rf"data:([\w.+/-]{{1,80}})(?:;[\w=.-]{{1,40}})*;base64,({_BASE64.pattern})")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
HOLDER_BYTES = 16
MAX_ADDRESS = 2_000
"""Characters."""
MAX_LINKS = 1_000
"""Archives that reading one follows back at most."""
_MEDIA_KEYS = ("media_type", "mimeType", "mime_type", "format")
_AUDIO = frozenset({"wav", "mp3", "flac", "opus", "aac", "pcm16", "ogg", "m4a"})
_BEGINNINGS = {
    "iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp", "JVBERi0": "application/pdf",
}  # fmt: skip
"""How the base64 of media begins that come without a word of what they are."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An archive that has a name and an address but no content yet."""

    id: str
    capability: str
    tenant: str
    session: str
    created: float
    address: str

    def filled(
        self, items: Sequence[tuple[int, Slice]], previous: str, strategy: str, level: int, format_name: str, model: str
    ) -> Archive:
        """The archive record. `items` are (index in the client's history, raw item); `previous` the address before this one."""
        link = id_in(previous)
        document = {
            "id": self.id, "session": self.session, "created": stamp(self.created), "format": format_name, "model": model,
            "strategy": strategy, "level": level, "previous": link,
            "items": [{"index": index, "item": sanitised(jsonspan.value(raw))} for index, raw in items],
        }  # fmt: skip
        return Archive(self.id, self.capability, self.tenant, self.session, self.created, link, jsonspan.dump(document))


def draft_archive(base: str, tenant: str, session: str, chain: Sequence[bytes], number: int) -> Draft:
    """Name (`compaction_{session}_{timestamp}_{n}`) and capability (128 bits, hex) for what the n-th compaction will remove."""
    created = time.time()
    secret, tag = _secret(b"".join((chain[-1], number.to_bytes(4, "big"))), tenant, b"compactd-archive")
    name = _UNSAFE.sub("-", session)[:48]
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(created))
    ident = f"compaction_{name}_{when}_{number}_{tag}"
    return Draft(ident, secret, tenant, session, created, address_of(base, ident, secret))


def draft_of_result(base: str, tenant: str, session: str, key: str) -> Draft:
    """The archive of one tool result that was cut: its name and address depend on nothing but its content and whose it is."""
    secret, tag = _secret(key.encode(), tenant, b"compactd-result")
    ident = f"result_{key}_{tag}"
    return Draft(ident, secret, tenant, session, time.time(), address_of(base, ident, secret))


def _secret(what: bytes, tenant: str, person: bytes) -> tuple[str, str]:
    """A capability (128 bits, hex) and a tag of 32 bits, which says nothing of it, so that no two archives have one name."""
    found = blake2b(what, key=tenant.encode()[:64], digest_size=20, person=person).hexdigest()
    return found[:32], found[32:]


def address_of(base: str, archive_id: str, capability: str) -> str:
    """Where an archive can be read; `base` is `listen.public_url` or what stands for it."""
    return f"{base}/compactd/archives/{archive_id}/{capability}"


def id_in(address: str) -> str:
    """The archive's id in one of our addresses, "" if it is none."""
    found = re.search(r"/compactd/archives/([^/]+)/", address)
    return found[1] if found else ""


def usable(address: str) -> bool:
    """May an address that a sink gave out stand in a note and in a header? One line, and not longer than what it stands for."""
    return len(address) <= MAX_ADDRESS and address.isprintable()


def stamp(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


class Archives(Protocol):
    """The part of the store that readers use."""

    async def get_archive(self, archive_id: str) -> Archive | None: ...


class Shelf(Archives, Protocol):
    """The part of the store that sinks use."""

    async def put_archive(self, archive: Archive) -> None: ...


class InStore:
    """The sink that is there without any configuration: archives lie in the store."""

    name = "store"
    addresses = False

    def __init__(self, store: Shelf) -> None:
        self._store = store

    async def put(self, archive: Archive) -> str | None:
        await self._store.put_archive(archive)
        return None

    async def get_archive(self, archive_id: str) -> Archive | None:
        return await self._store.get_archive(archive_id)


def holder_of(archive_id: str, capability: str) -> bytes:
    """Who holds the capability is known by this where the archive can't be opened. It gives nothing of it away, and may lie in the open."""
    return blake2b(
        capability.encode(), key=archive_id.encode()[:64], digest_size=HOLDER_BYTES, person=b"compactd-holder"
    ).digest()


async def opened_by(archives: Archives, archive_id: str, capability: str) -> Archive | None:
    """The archive for who holds its capability; for all others None, as if it were not there. Raises StoreFailed, and Unreadable for who
    does hold it."""
    try:
        archive = await archives.get_archive(archive_id)
    except Unreadable as fault:
        if hmac.compare_digest(fault.holder, holder_of(archive_id, capability)):
            raise
        return None
    return archive if archive and hmac.compare_digest(archive.capability.encode(), capability.encode()) else None


async def full_document(store: Archives, archive: Archive) -> dict[str, Any]:
    """The archive's document with the items of all archives before it, oldest first, each item once. Where one before it can't be opened,
    `unreadable` says which and why."""
    document: dict[str, Any] = jsonspan.value(archive.document)
    items = {item["index"]: item for item in document["items"]}
    previous, seen = archive.previous, {archive.id}
    while previous and previous not in seen and len(seen) < MAX_LINKS:
        seen.add(previous)
        try:
            before = await store.get_archive(previous)
        except Unreadable as fault:
            document["unreadable"] = f"{previous} {fault.why}"
            break
        if before is None or before.tenant != archive.tenant:
            break
        for item in jsonspan.value(before.document)["items"]:
            items.setdefault(item["index"], item)
        previous = before.previous
    return {**document, "items": [items[index] for index in sorted(items)]}


def sanitised(value: Any) -> Any:
    """The value with long base64 media replaced by a line that says what was there; all other text stays, word for word."""
    if isinstance(value, dict):
        kind = next((value[key] for key in _MEDIA_KEYS if isinstance(value.get(key), str)), "")
        told = "/" in kind or kind in _AUDIO
        return {
            key: _medium(inner, kind) if key == "data" and told else sanitised(inner) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [sanitised(inner) for inner in value]
    if not isinstance(value, str) or len(value) < LONG:
        return value
    kind = next((kind for start, kind in _BEGINNINGS.items() if value.startswith(start)), "")
    if kind and _BASE64.fullmatch(value):
        return _told(kind, value)
    return _DATA_URL.sub(lambda found: _told(found[1], found[2]), value)


def _medium(value: Any, kind: str) -> Any:
    """What lies where a medium of this kind has its data."""
    return _told(kind, value) if isinstance(value, str) and _BASE64.fullmatch(value) else sanitised(value)


def _told(kind: str, data: str) -> str:
    family = "audio" if kind in _AUDIO else kind.split("/", 1)[0]
    noun = f"{family} data" if family in ("image", "audio", "video") else "data"
    return f"[base64 {noun}: {len(data.rstrip('=')) * 3 // 4} bytes, {kind}]"
