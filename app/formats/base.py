"""What a wire format has to tell: the only place that knows its keys.

A format reads one item at a time and says neutral facts about it; it writes four small things (a note, a cleared place, a text put
ahead of an item's own, an error) and reads a few more (usage, overflow, a summary's answer). It never converts a conversation, keeps
no state, does no I/O and knows no strategy. A new format is one file with one such class and a line in `FORMATS`; the methods that
have a body here need not be written where a format has nothing of its own to say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from app.core.jsonspan import Edit, dump
from app.core.transcript import Part
from app.core.view import Clearing, Facts
from app.formats import wording


@dataclass(frozen=True, slots=True)
class Usage:
    """What a provider reported for one request, tokens. `input` is the whole prompt, cached parts included; `output` what it wrote.
    0 means not told; a stream may tell them one after the other. `edits` are the figures of its own context editing, by its names."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    edits: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's plain answer. `problem` is a short word where it is not one to build on: refused, truncated, tool_call, reasoning_only."""

    text: str
    problem: str = ""
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class CountCall:
    """How a provider's counting endpoint is asked about a request body.

    keys     the top-level keys that it takes, () for all
    under    the key under which it wants the body, "" for none; `model` is then put into it
    answer   the key of the figure in its answer
    """

    path: bytes
    answer: str
    keys: tuple[str, ...] = ()
    under: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a request can do about reasoning that is bound to the prefix it was made behind.

    way      "ask": the provider is asked to drop what does not fit any more (`edits` of the body's top level, `beta` for the beta header);
             "allowed": the client has asked for that itself; "forbidden": the client wants to see the error; "impossible": can't be asked
    """

    way: Literal["ask", "allowed", "forbidden", "impossible"]
    edits: tuple[Edit, ...] = ()
    beta: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes, as the path says: the format, the model if the path names it (the body may know better), whether it asks for a
    stream."""

    format: str
    model: str = ""
    stream: bool = False


class Format(Protocol):
    name: ClassVar[str]
    history: ClassVar[str]
    """top-level key of the conversation"""
    fields: ClassVar[tuple[str, ...]]
    """other top-level keys that the methods below want to see"""
    counted: ClassVar[tuple[str, ...]]
    """those of them that `fixed` reads"""
    auth_header: ClassVar[str]
    """the header that carries the key of this format's own provider"""
    terminal: ClassVar[tuple[bytes, ...]]
    """what the last event of a stream contains; a client that leaves after it has not aborted"""
    keepalive: ClassVar[bytes]
    """what may stand in an event stream before its first event, and is ignored by this format's clients"""

    def target(self, path: str) -> Target | None:
        """Is this path (upstream prefix taken off, percent-decoded) one whose requests carry a conversation in this format?"""
        ...

    def refusal(self, fields: Mapping[str, Any], last: Any) -> str:
        """A short reason why this request passes untouched ("server_history", "client_compaction", …), or "".

        `fields` are the parsed top-level fields, `last` the parsed last item (None if there is none).
        """
        ...

    def session_hint(self, fields: Mapping[str, Any]) -> str:
        """What the client itself calls this session, "" if it does not say."""
        return ""

    def facts(self, item: Any) -> Facts:
        """Facts of one parsed item. Never raises: what it does not know is pinned."""
        ...

    def parts(self, item: Any) -> Iterator[Part]:
        """The item's readable stretches in order. Never raises."""
        ...

    def fixed(self, fields: Mapping[str, Any]) -> Iterator[Part]:
        """What the model reads besides the conversation: system prompt, tool definitions."""
        ...

    def canonical(self, item: Any) -> Any:
        """The item without what real clients change between requests; equal values mean the same item."""
        ...

    def clear(self, item: Any, clearings: Sequence[Clearing]) -> list[Edit]:
        """Edits that put the clearings' texts in the places of results (or of call arguments: an empty object of their kind). Here
        OpenAI's way: `arguments` is a JSON text of an object, a custom tool's `input` free text (C8, C16)."""
        facts = self.facts(item)
        places = [(facts.calls if c.inputs else facts.results)[c.ordinal].path for c in clearings]
        texts = [
            "{}" if c.inputs and path[-1] != "input" else c.text for c, path in zip(clearings, places, strict=True)
        ]
        return [(path, dump(text)) for path, text in zip(places, texts, strict=True)]

    def lead(self, item: Any, text: str) -> list[Edit]:
        """Edits that put `text` ahead of a user item's own content."""
        ...

    def without_reasoning(self, item: Any) -> list[Edit]:
        """Edits that take an item's reasoning away, all of it, and leave the rest as it is; or the tie to reasoning that was an item of its
        own. Raises NotCompactable where an item can't be without that."""
        ...

    def without_calls(self, item: Any) -> list[Edit] | None:
        """Edits that take an item's calls away and leave what it says; None where an item can't stand without them."""
        return None

    def binding(self, fields: Mapping[str, Any]) -> Binding:
        """Asked only for models whose reasoning is bound to its prefix."""
        return Binding("impossible")

    def note(self, text: str) -> bytes:
        """JSON text of one user-role item that says `text`."""
        ...

    def obliges(self, fields: Mapping[str, Any]) -> str:
        """A word that these fields oblige the history to contain, in any case; "" if none."""
        return ""

    def usage(self, event: Any) -> Usage | None:
        """Usage in a parsed answer or stream event, None if it holds none."""
        ...

    def merge(self, earlier: Usage, later: Usage) -> Usage:
        """Usage of a stream so far and of its next report."""
        return Usage(
            later.input or earlier.input, later.output or earlier.output,
            later.cache_read or earlier.cache_read, later.cache_write or earlier.cache_write,
        )  # fmt: skip

    def overflow(self, status: int, body: bytes) -> int | None:
        """Does this error answer say that the context is too long? The window it names in tokens, 0 if it names none, None: no."""
        return wording.overflow(status, body)

    def refused(self, fields: Mapping[str, Any], quirks: Collection[str]) -> Binding | None:
        """Edits of the body's top level that take out what this model is known to refuse, and the beta value that goes with it; None:
        nothing."""
        return None

    def counting(self, model: str, path: str) -> CountCall | None:
        """The counting endpoint beside the client's own raw path, None if this format has none."""
        return None

    def lesson(self, status: int, body: bytes) -> str:
        """A quirk of the model that this refusal gives away, "" if none."""
        return wording.lesson(status, body)

    def question(
        self, model: str, text: str, max_tokens: int, path: str, quirks: Collection[str], fields: Mapping[str, Any]
    ) -> tuple[bytes, bytes]:
        """Path and body of a request that asks a model one thing, plainly: no tools, no stream.

        `path` is the raw path of the client's own request where this goes the same way ("" elsewhere), `fields` are that request's: for
        what a provider insists on (an API version in the path, the first system block of a subscription).
        """
        ...

    def answer(self, body: Any) -> Answer:
        """What the parsed answer to such a request says, a list being the events of a stream. Never raises."""
        ...

    def error(self, status: int, code: str, message: str) -> bytes:
        """An error of compactd's own in this format's shape (JSON text); here OpenAI's."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        return dump({"error": {"message": message, "type": kind, "param": None, "code": code}})

    def stream_error(self, status: int, code: str, message: str) -> bytes:
        """The same as an event of a stream that is open already. `code` and `message` may be the provider's own."""
        return b"data: " + self.error(status, code, message) + b"\n\n"


__all__ = ["Answer", "Binding", "CountCall", "Format", "Part", "Target", "Usage"]
