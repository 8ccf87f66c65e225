"""Signatures that a provider can check: each is bound to what it was made for.

A thinking block's signature holds a hash of the prefix that it was made behind (top-level `system`, `tools`, every earlier
message) and of its own words, so a changed prefix or a changed block shows without any memory. Reasoning items of the
Responses API are remembered instead: which item came with which, and what was encrypted.
source: https://platform.claude.com/docs/en/build-with-claude/preserved-thinking, pydantic/pydantic-ai#7989,
continuedev/continue#10018
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from .anthropic_betas import BINDING_CONTROLS
from .prefix_cache import canonical
from .violation import Found, Violation, dicts

_MARK = "bound1"


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _prefixes(body: dict[str, Any]) -> Iterator[str]:
    """The hash of what stands before each message, and one more for what stands before the answer."""
    system = body.get("system")
    digest = _hash(canonical([{"type": "text", "text": system}] if isinstance(system, str) else system or []))
    digest = _hash(digest, canonical(body.get("tools") or []))
    yield digest
    for message in dicts(body.get("messages")):
        digest = _hash(digest, canonical(message))
        yield digest


def sign(body: dict[str, Any], thinking: str) -> str:
    """The signature of a thinking block that answers this body."""
    prefix = ""
    for prefix in _prefixes(body):  # noqa: B007 the last one stands before the answer
        pass
    return f"{_MARK}.{prefix}.{_hash(thinking)}"


def check(body: dict[str, Any], betas: frozenset[str]) -> tuple[list[Violation], int]:
    """AB1 (and A28, A33 for changed blocks) over the blocks that `sign` has signed; others are left alone.

    Returns the violations, and how many blocks were dropped because the request asked for it (AB2).
    """
    found = Found()
    dropped = 0
    thinking = body.get("thinking")
    controls = thinking.get("block_binding") if isinstance(thinking, dict) else None
    asked = isinstance(controls, dict) and controls.get("prefix_mismatch_behavior") == "drop_block"
    drop = asked and BINDING_CONTROLS in betas
    messages = dicts(body.get("messages"))
    latest = max((i for i, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
    for i, (prefix, message) in enumerate(zip(_prefixes(body), messages, strict=False)):
        for j, block in enumerate(dicts(message.get("content"))):
            sealed = block.get("signature") if block.get("type") == "thinking" else None
            if not isinstance(sealed, str) or not sealed.startswith(_MARK + "."):
                continue
            _, made_behind, words = sealed.split(".")
            where = f"messages.{i}.content.{j}"
            if words != _hash(str(block.get("thinking"))):
                _changed(where, i == latest, found)
            elif made_behind != prefix and drop:
                dropped += 1
            elif made_behind != prefix:
                found.add(
                    "AB1",
                    where,
                    f"{where}: Invalid `signature` in `thinking` block: the block is bound to a different conversation.",
                )
    return found, dropped


def _changed(where: str, latest: bool, found: Found) -> None:
    if latest:
        found.add(
            "A28",
            where,
            f"{where}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These "
            "blocks must remain as they were in the original response.",
        )
    else:
        found.add("A33", where, f"{where}: Invalid `signature` in `thinking` block")


class Reasoning:
    """What the Responses API remembers of the reasoning that it gave out."""

    def __init__(self) -> None:
        self.came_with: dict[str, str] = {}
        """Item id -> id of the reasoning item that it came with."""
        self._encrypted: dict[str, str] = {}

    def issued(self, output: list[dict[str, Any]]) -> None:
        """Remembers one answer's output items."""
        before: str | None = None
        for item in output:
            if item["type"] == "reasoning":
                before = item["id"]
                self._encrypted[item["id"]] = item["encrypted_content"]
            elif before is not None:
                self.came_with[item["id"]] = before
                before = None

    def check(self, body: dict[str, Any]) -> list[Violation]:
        """R13: encrypted reasoning comes back as it was."""
        found = Found()
        for i, item in enumerate(dicts(body.get("input"))):
            given = self._encrypted.get(str(item.get("id")))
            encrypted = item.get("encrypted_content")
            if given is not None and encrypted is not None and encrypted != given:
                found.add("R13", f"input.{i}", f"The encrypted content for item {item['id']} could not be verified.")
        return found
