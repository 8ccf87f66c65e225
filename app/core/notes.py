"""The words that compactd itself puts into a conversation, and how it knows them again.

Every one carries the word "compaction", so that whoever reads a request can find it. The same facts give the same bytes: no clock, no
request-dependent part.
"""

from __future__ import annotations

from collections.abc import Sequence

RECAP_OPENING, RECAP_CLOSING = "<compaction_summary>", "</compaction_summary>"
_NOTICE_END = "what they said may be missing.]"
_OMITTED = "removed here by compaction"
_CARRIED, _CARRIED_END = (
    "Instructions that were given in them and still hold:",
    "[So much of the earlier messages was kept by compaction.]",
)
_CLEARED = "[Tool result cleared by compaction"
_LEFT_OUT = "[Tool result of an earlier turn left out by compaction"
ADDRESS_WORTH = 1_000
"""Bytes: smaller cleared results don't say where they can be read, the address would be half as long as they were."""


def is_note(text: str) -> bool:
    """Did compactd write this user text, all of it?"""
    if text == CONTINUATION:
        return True
    if text.startswith(RECAP_OPENING):
        return text.rstrip().endswith(RECAP_CLOSING)
    notice, found, rest = text.partition(_NOTICE_END)
    carried = rest.startswith(f"\n\n{_CARRIED}") and rest.endswith(_CARRIED_END)
    return bool(found) and notice.startswith("[") and _OMITTED in notice and (not rest or carried)


def omitted_note(count: int, carried: Sequence[str] = ()) -> str:
    """The truncation notice for `count` items; `carried` are standing instructions that left with them."""
    subject = f"{count} earlier messages were" if count != 1 else "1 earlier message was"
    notice = f"[{subject} {_OMITTED} (sliding window); {_NOTICE_END}"
    return "\n\n".join([notice, _CARRIED, *carried, _CARRIED_END]) if carried else notice


def is_cleared(text: str) -> bool:
    """Is this what compactd put in the place of a result or an input, so that nothing is left there to clear?"""
    return text.startswith((_CLEARED, _LEFT_OUT)) or text == CLEARED_INPUT


def cleared_result(tool: str, size: int, address: str) -> str:
    """What stands where a tool result of `size` bytes was."""
    named = f"{tool[:80]}, " if tool else ""
    where = f" It can be read at: {address}" if address and size >= ADDRESS_WORTH else ""
    return f"{_CLEARED}: {named}{size:,} bytes.{where}]"


def left_out_result(tool: str) -> str:
    """What stands where a finished turn's tool result was that the policy does not show any more."""
    return f"{_LEFT_OUT}{': ' + tool[:80] if tool else ''}.]"


def cut_result(text: str, total: int, most: int, address: str) -> str:
    """Head and tail of a tool result of `total` tokens so that about `most` are left, with a line between them that says so."""
    where = f"; all of it can be read at: {address}" if address else ""
    line = f"\n[… cut by compaction: {total:,} tokens, head and tail are shown{where} …]\n"
    room = max(0, len(text) * most // max(1, total) - len(line))
    head = room * 2 // 3
    return text[:head] + line + (text[len(text) - (room - head) :] if room > head else "")


CONTINUATION = "[After a compaction: go on with the work that the summary above describes.]"
"""The user item that a conversation ends on where even its running tool round was summarised."""
BARE = "[Reasoning removed by compaction.]"
"""What stands in an item that held nothing else and may not be empty."""
CLEARED_INPUT = "[Cleared by compaction.]"
"""What stands where a free-text tool input was; JSON arguments become an empty object."""
