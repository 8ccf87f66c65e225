"""Ways to spoil a request body: in its structure, in its text, in its bytes, in its coding.

Everything comes from the `Random` that is handed in, so that a number names a case for ever.
"""

from __future__ import annotations

import copy
import gzip
import json
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import brotli
import zstandard

ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**30, 1e308, "", " ", "x", "\u0000", "\ud800", "\U0001f600" * 50, "[DONE]", [], {}, [[]], [None],
    {"": {}}, {"type": "text"}, {"type": "text", "text": 7}, {"role": "user"}, "compaction", "<compaction_summary>", "x" * 3_000,
    "[3 earlier messages were removed here by compaction (sliding window); what they said may be missing.]",
]  # fmt: skip
ROLES = ["user", "assistant", "system", "developer", "tool", "function", "model", "ipython", "", None, 7]
TYPES = [
    "text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "server_tool_use", "function_call",
    "function_call_output", "reasoning", "message", "item_reference", "compaction", "compaction_trigger", "custom", "unheard_of", None,
]  # fmt: skip
FIELDS = [
    "stream", "tools", "system", "metadata", "thread", "previous_response_id", "conversation", "cachedContent", "store", "thinking",
    "context_management", "max_tokens", "model", "instructions",
]  # fmt: skip
DEEP = 3_000


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a value, the value itself first."""
    found = [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        found += places(one, (*path, key))
    return found


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


# In the structure; each changes the body that it is given, `history` being its conversation


def _drop(_: Any, history: list[Any], chance: Random) -> None:
    del history[chance.randrange(len(history))]


def _drop_stretch(_: Any, history: list[Any], chance: Random) -> None:
    start = chance.randrange(len(history))
    del history[start : start + chance.randint(1, 5)]


def _repeat(_: Any, history: list[Any], chance: Random) -> None:
    history.insert(chance.randrange(len(history) + 1), copy.deepcopy(chance.choice(history)))


def _swap(_: Any, history: list[Any], chance: Random) -> None:
    one, other = chance.randrange(len(history)), chance.randrange(len(history))
    history[one], history[other] = history[other], history[one]


def _cut_end(_: Any, history: list[Any], chance: Random) -> None:
    del history[chance.randint(1, len(history)) :]


def _odd_item(_: Any, history: list[Any], chance: Random) -> None:
    history[chance.randrange(len(history))] = copy.deepcopy(chance.choice(ODD))


def _role(_: Any, history: list[Any], chance: Random) -> None:
    item = chance.choice(history)
    if isinstance(item, dict):
        item["role"] = chance.choice(ROLES)


def _place(body: Any, chance: Random) -> tuple[Any, Any] | None:
    path = chance.choice(places(body)[1:])
    return (at(body, path[:-1]), path[-1]) if path else None


def _odd_value(body: Any, _: list[Any], chance: Random) -> None:
    holder, key = _place(body, chance) or (None, None)
    holder[key] = copy.deepcopy(chance.choice(ODD))


def _no_key(body: Any, _: list[Any], chance: Random) -> None:
    holder, key = _place(body, chance) or (None, None)
    del holder[key]


def _other_key(body: Any, _: list[Any], chance: Random) -> None:
    holder, key = _place(body, chance) or (None, None)
    if isinstance(holder, dict):
        holder[chance.choice(["x", "type", "id", "content", "role", "", "parts", "output", "cache_control"])] = (
            holder.pop(key)
        )


def _type(body: Any, _: list[Any], chance: Random) -> None:
    typed = [path for path in places(body) if path and path[-1] == "type"]
    if typed:
        path = chance.choice(typed)
        at(body, path[:-1])["type"] = chance.choice(TYPES)


def _ids(body: Any, _: list[Any], chance: Random) -> None:
    """One call id becomes another's, or something odd."""
    named = [
        path for path in places(body) if path and path[-1] in ("id", "call_id", "tool_call_id", "tool_use_id", "name")
    ]
    if named:
        one, other = chance.choice(named), chance.choice(named)
        at(body, one[:-1])[one[-1]] = chance.choice([at(body, other), None, "", 7, "x" * 100])


def _grow(body: Any, _: list[Any], chance: Random) -> None:
    texts = [path for path in places(body) if isinstance(at(body, path), str)]
    path = chance.choice(texts)
    if path:
        at(body, path[:-1])[path[-1]] = at(body, path) * chance.randint(2, 30)


def _more_fields(body: Any, _: list[Any], chance: Random) -> None:
    body[chance.choice(FIELDS)] = copy.deepcopy(chance.choice(ODD))


STRUCTURE: list[Callable[[Any, list[Any], Random], None]] = [
    _drop, _drop_stretch, _repeat, _swap, _cut_end, _odd_item, _role, _odd_value, _odd_value, _no_key, _other_key, _type, _ids, _grow,
    _more_fields,
]  # fmt: skip


# In the text


def _escapes(text: str, chance: Random) -> str:
    """Other spellings of the same characters."""
    spot = chance.randrange(len(text))
    letters = "".join(
        f"\\u{ord(one):04x}" if one.isalpha() and ord(one) < 0xD800 else one for one in text[spot : spot + 40]
    )
    inside = text[:spot].count('"') % 2 and "\\" not in text[spot - 1 : spot + 40] and '"' not in text[spot : spot + 40]
    return text[:spot] + letters + text[spot + 40 :] if inside else text


def _numbers(text: str, chance: Random) -> str:
    return text.replace(
        "1", chance.choice(["1e0", "1.0", "10e-1", "1E+0", "01", "1_000", "Infinity", "-", "1" * 400]), 1
    )


def _twice(text: str, chance: Random) -> str:
    key = chance.choice(['"messages":', '"input":', '"contents":', '"role":', '"content":', '"model":', '"id":'])
    return text.replace(key, f"{key}{chance.choice(['[]', 'null', '1', '{}'])},{key}", 1)


def _space(text: str, chance: Random) -> str:
    blank = chance.choice([" ", "\n", "\t", "\r\n  ", " " * 500])
    return text.replace(
        chance.choice([",", ":", "{", "]"]), chance.choice([",", ":", "{", "]"]) + blank, chance.randint(1, 3)
    )


def _deep(text: str, chance: Random) -> str:
    opening, closing = chance.choice([("[", "]"), ('{"a":', "}")])
    return text.replace("null", opening * DEEP + "null" + closing * DEEP, 1).replace(
        '""', opening * DEEP + '""' + closing * DEEP, 1
    )


def _surrogate(text: str, chance: Random) -> str:
    return text.replace(
        "e", chance.choice(["\\ud800", "\\udfff\\ud800", "\\u0000", "\\x", "\\ud83d\\ude00"]), chance.randint(1, 2)
    )


TEXT = [_escapes, _numbers, _twice, _space, _deep, _surrogate]


# In the bytes


def _flip(data: bytearray, chance: Random) -> None:
    data[chance.randrange(len(data))] = chance.randrange(256)


def _truncate(data: bytearray, chance: Random) -> None:
    del data[chance.randrange(len(data)) :]


def _insert(data: bytearray, chance: Random) -> None:
    spot = chance.randrange(len(data))
    data[spot:spot] = chance.choice([b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"}", b"]", b'"', b",", b"\\", bytes(200)])


def _tail(data: bytearray, chance: Random) -> None:
    data += chance.choice([b" ", b"\n\n", b"x", b"{}", b"\x00", b"]"])


def _mark(data: bytearray, chance: Random) -> None:
    data[:0] = chance.choice([b"\xef\xbb\xbf", b" \n", b"\xff\xfe", b"["])


BYTES = [_flip, _truncate, _insert, _tail, _mark]

CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1),
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=1),
    "zstd": zstandard.compress,
}


def mutated(body: dict[str, Any], key: str, chance: Random) -> tuple[bytes, str]:
    """A spoiled body and its content coding ("" for none). `key` is that of the conversation."""
    body = copy.deepcopy(body)
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        history = body.get(key)
        if isinstance(history, list) and history:
            chance.choice(STRUCTURE)(body, history, chance)
    text = json.dumps(body, ensure_ascii=chance.random() < 0.5, separators=chance.choice([(",", ":"), (", ", ": ")]))
    if chance.random() < 0.2:
        text = chance.choice(TEXT)(text, chance)
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if chance.random() < 0.15:
        chance.choice(BYTES)(data, chance)
    if chance.random() > 0.15:
        return bytes(data), ""
    coding = chance.choice(list(CODINGS))
    packed = bytearray(CODINGS[coding](bytes(data)))
    if chance.random() < 0.3:
        chance.choice([_flip, _truncate, _tail])(packed, chance)
    return bytes(packed), coding
