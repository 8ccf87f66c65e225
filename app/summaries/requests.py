"""Earlier requests of the user, word for word: nothing else in a conversation is as costly to lose.

The newest first as long as there is room, shown in the order in which they were made. Each stands under a line that says how many lines it
has, so that it may hold anything and can still be read back from an earlier summary, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from app.core.transcript import Seen
from app.summaries.recap import summary_in

REQUESTS = "### Earlier requests, word for word, oldest first"
_HEAD = re.compile(r"user, (\d+) lines?")
HEAD_TOKENS = 6


def kept_requests(items: Sequence[Seen], tokens: int, count: Callable[[str], int]) -> str:
    """A section with the requests among these items, and those that an earlier summary among them kept, of at most `tokens` tokens; "" if
    none fits."""
    texts = [text for item in items for text in requests_of(item)]
    chosen = newest(texts, tokens - count(REQUESTS), count)
    while chosen:
        section = requests_section([texts[at] for at in chosen])
        if count(section) <= tokens:
            return section
        chosen = chosen[1:]
    return ""


def requests_of(item: Seen) -> list[str]:
    """What the user asks in an item of the client's, or what an earlier recap kept of it."""
    if item.facts.note:
        return requests_in(summary_in(item.parts[0].text)) if item.parts else []
    if item.facts.role != "user":
        return []
    return [text for part in item.parts if part.kind == "text" and (text := part.text.strip())]


def newest(texts: Sequence[str], tokens: int, count: Callable[[str], int]) -> list[int]:
    """Indices, ascending, of the texts to keep: the newest that fit; one that is too long for what is left does not bar older ones. The
    same text twice is kept once, where it stands last."""
    chosen: list[int] = []
    seen: set[str] = set()
    for at in range(len(texts) - 1, -1, -1):
        if tokens <= HEAD_TOKENS:
            break
        if texts[at] in seen or len(texts[at]) > 16 * tokens:
            continue
        cost = count(texts[at]) + HEAD_TOKENS
        if cost <= tokens:
            chosen.append(at)
            seen.add(texts[at])
            tokens -= cost
    return chosen[::-1]


def requests_section(texts: Sequence[str]) -> str:
    """The section as text, "" without requests."""
    return "\n".join([REQUESTS, *map(_written, texts)]) if texts else ""


def _written(text: str) -> str:
    lines = text.count("\n") + 1
    return f"user, {lines} line{'s' if lines > 1 else ''}\n{text}"


def requests_in(summary: str) -> list[str]:
    """The requests that a summary of ours holds."""
    return [text for heading, text in sections_of(summary) if heading == REQUESTS]


def sections_of(summary: str) -> Iterator[tuple[str, str]]:
    """A summary taken apart: (REQUESTS, one request) for each request, (heading, body) for each other section. A heading is a line that
    begins with "### "; what stands before the first has the heading ""."""
    lines = summary.split("\n")
    at, heading, body = 0, "", []  # type: tuple[int, str, list[str]]
    while at < len(lines):
        line = lines[at]
        at += 1
        if line == REQUESTS:
            if any(body):
                yield heading, "\n".join(body)
            heading, body = "", []
            while at < len(lines) and (head := _HEAD.fullmatch(lines[at])):
                size = int(head[1]) if len(head[1]) < 8 else len(lines)
                yield REQUESTS, "\n".join(lines[at + 1 : at + 1 + size])
                at += 1 + size
        elif line.startswith("### "):
            if any(body):
                yield heading, "\n".join(body)
            heading, body = line, []
        else:
            body.append(line)
    if any(body):
        yield heading, "\n".join(body)
