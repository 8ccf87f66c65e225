"""The client's own view of its request, read as far as its items were not seen before, and the context that goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from app.core.view import Chains, EntryCache, View, raw_bytes, size_of
from app.errors import NotCompactable
from app.formats import FORMATS
from app.formats.media import media_cost
from app.formats.reading import Reader, bound_values
from app.request import Ask, Context
from app.threads import in_thread

BEGINNING = 300
"""Bytes of a conversation's instructions that tell its session from others."""
READ_INLINE = 512 << 10
"""Up to here unknown items are read on the event loop (some milliseconds); more goes to a thread."""


class Viewer:
    """One for all requests: it remembers items, chains and readers."""

    def __init__(self) -> None:
        self._cache = EntryCache()
        self._chains = Chains()
        self._readers: dict[tuple[str, str, frozenset[str]], Reader] = {}

    def reader(self, ask: Ask) -> Reader:
        """Models that count alike share one."""
        model = ask.model
        key = (ask.format, model.encoding, model.quirks)
        reader = self._readers.get(key)
        if reader is None:
            media = media_cost(model.fact)
            others = (
                other for (*kind, _), other in self._readers.items() if kind == [*key[:2]] and other.media == media
            )
            reader = next(others, None) or Reader(FORMATS[ask.format], model.encoding, self._cache, media)
            self._readers[key] = reader
        return reader

    async def view(self, ask: Ask, reader: Reader) -> View:
        """Raises NotCompactable("no_history") for a history without items, "not_json" or "too_many_items" for one that can't be
        read."""
        raws = ask.opened.raws
        if not raws:
            raise NotCompactable("no_history")
        found, digests = reader.known(raws)
        new = sum(size_of(raw) for raw, entry in zip(raws, found, strict=True) if entry is None)
        if new > READ_INLINE:
            bound_values(ask.opened.body)
            entries = await in_thread(new, reader.read, raws, found, digests)
        else:
            entries = reader.read(raws, found, digests)
        return View(raws, entries)

    def context(self, ask: Ask, reader: Reader, view: View) -> Context:
        """What the request gathers from here on; its session is the client's, else named after how the conversation begins."""
        # What an observing policy settles must never be replayed by one that is on.
        owner = ask.tenant + (" observe" if ask.policy.mode == "observe" else "")
        links = self._chains.chain(owner, ask.format, view.entries)
        return Context(ask, reader, view, view, links, ask.session or _session(view, links))


def _session(view: View, links: Sequence[bytes]) -> str:
    """Named after the first item, and after what the instructions before it begin with, but for figures: those are often the time, and many
    conversations begin with the same question."""
    first = next((at for at, entry in enumerate(view.entries) if entry.facts.role != "system"), len(view) - 1)
    head = raw_bytes(view.raws[0])[:BEGINNING].translate(None, b"0123456789") if first else b""
    return blake2b(links[first] + head, digest_size=12).hexdigest()
