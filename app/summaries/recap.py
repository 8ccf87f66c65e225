"""The recap: the one user-role note that stands where a conversation's earlier part was.

Its frame is fixed and its bytes are a function of what is put in, so the same compaction gives the same prefix on every replica. What a
summariser wrote is data inside the frame: it can't close it, nor speak for the user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.core.notes import RECAP_CLOSING, RECAP_OPENING

CARRIED = "## Instructions that were given earlier and still hold"
_NOW = (
    "The work goes on from here: the request that follows stands as it was asked; what it needs from before is above."
)
_RUNNING = (
    "The work goes on from here: the request before this note stands as it was asked and is still being worked on."
)
_FRAME = re.compile(r"<(?=[\s/]*compaction_summary\b)", re.IGNORECASE)
_HEADING = re.compile(r"^##(?= (?:Reference|Now|Instructions that were given earlier)\b)", re.MULTILINE)


def recap(summary: str, number: int, address: str = "", carried: Sequence[str] = (), running: bool = False) -> str:
    """The whole note. `address` is where the removed messages can be read ("" leaves the reference out); `carried` are standing
    instructions that left with them; `running` says that it stands behind the question of a turn that is still at work."""
    about = "Progress so far, the work is not finished" if running else "Summary of the earlier conversation"
    parts = [RECAP_OPENING, f"## {about} (compaction #{number})", inner(summary)]
    if carried:
        parts += [CARRIED, *map(inner, carried)]
    if address:
        parts += ["## Reference", f"The messages that this summary replaces can be read in full at: {address}"]
    parts += ["## Now", _RUNNING if running else _NOW, RECAP_CLOSING]
    return "\n".join(parts)


def inner(text: str) -> str:
    """Text that can't be mistaken for the frame, nor for a part of it."""
    return _HEADING.sub("###", _FRAME.sub("(", text.strip()))


def summary_in(text: str) -> str:
    """The summary that a recap of ours holds, for merging it into the next one; "" if `text` is none. Instructions that it carries are left
    out: they are carried over by themselves."""
    if not text.startswith(RECAP_OPENING):
        return ""
    body = text[len(RECAP_OPENING) :]
    for heading in ("## Now", "## Reference", CARRIED):
        body = body.partition(f"\n{heading}\n")[0]
    return body.lstrip("\n").partition("\n")[2].strip()
