"""What is known about a model: how much input it takes, which encoding counts for it, which quirks it has.

A name on the wire is only a hint. The same model arrives as `claude-opus-4-5`, `anthropic/claude-opus-4.5`,
`us.anthropic.claude-opus-4-5-20251101-v1:0` or `claude-4-5-opus@20251101`, and next month there is a model that no file
knows. So a name is first looked for as it is (configuration, then the shipped `models.json`), then peeled: prefixes of
hosts and vendors, and suffixes that never change a window (dates, `-latest`, `:free`), are taken off one at a time. What
could mean another model (`-mini`, `-codex`, a higher version number) is never taken off: a guess that is too large would
overflow the model, while an unknown model is taken as 128,000 tokens, says so once, and learns from the first overflow.

Quirks are words (`alternating_roles`) or facts (`token_ratio=1.5`); `models.json` lists them all in its head.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import Protocol

from app.core.recent import Recent

UNKNOWN_WINDOW = 128_000  # errs early, never late
LEAST_WINDOW = 1_024  # a learnt window below this is a misread error text
BOUND = 1_024  # names remembered: clients choose them, so there is no end of them
LONGEST_NAME = 256  # characters of a name that are looked at


@dataclass(frozen=True, slots=True)
class Model:
    """`name` is the registry's or the configuration's own name for it, or the client's if it is unknown to both.

    `context_window` is the input limit in tokens. `known` is False if that is nothing but `UNKNOWN_WINDOW`.
    """

    name: str
    context_window: int
    encoding: str
    quirks: frozenset[str]
    known: bool

    def fact(self, name: str, default: float) -> float:
        """The number behind a quirk `name=number`."""
        prefix = f"{name}="
        return next((float(quirk[len(prefix) :]) for quirk in self.quirks if quirk.startswith(prefix)), default)

    def with_quirks(self, quirks: Iterable[str]) -> Model:
        """The same model at an upstream that adds these: a fact takes the place of the one of its name, `-name` takes one away."""
        return replace(self, quirks=_merged([*self.quirks, *quirks]))


class Override(Protocol):
    """What the configuration says of a model. None leaves it as it is; quirks are added, `-quirk` takes one away."""

    @property
    def context_window(self) -> int | None: ...
    @property
    def encoding(self) -> str | None: ...
    @property
    def quirks(self) -> Collection[str]: ...


class Registry:
    """Looks models up. Overrides are name or glob -> Override: an exact name wins, else the first glob that matches."""

    def __init__(
        self,
        overrides: Mapping[str, Override],
        warnings: Callable[[str], None],
        table: Table | None = None,
    ) -> None:
        self._table = table or shipped()
        self._overrides = {name.lower(): (name, override) for name, override in overrides.items()}
        self._globs = [(re.compile(translate(name.lower())), name.lower()) for name in overrides if _is_glob(name)]
        self._warn = warnings
        self._warned: set[str] = set()
        self._models: Recent[str, Model] = Recent(BOUND)
        self._learnt: Recent[tuple[str, str, str], int] = Recent(BOUND)
        self._lessons: Recent[tuple[str, str], frozenset[str]] = Recent(BOUND)

    def lookup(self, model: str, upstream: str = "", tenant: str = "") -> Model:
        """What is known of this name, with the window learnt from this upstream if it is smaller or the only one, and learnt quirks.

        What was learnt for one tenant is so for no other: a refusal quotes the request, so whoever sent that can choose words of it.
        """
        found, name = self._find(model), model[:LONGEST_NAME]
        if quirks := self._lessons.get((name, tenant)):
            found = found.with_quirks(quirks)
        window = self._learnt.get((name, upstream, tenant))
        if window is None or (found.known and window >= found.context_window):
            return found
        return replace(found, context_window=window, known=True)

    def learn(self, model: str, upstream: str, window: int, tenant: str = "") -> None:
        """Remember the window (tokens) that an upstream named when it refused a request as too long."""
        if window >= LEAST_WINDOW:
            self._learnt.put((model[:LONGEST_NAME], upstream, tenant), window)

    def remember(self, other: Registry) -> None:
        """Share what another registry has learnt and will learn, as after a change of the configuration, while its requests end."""
        self._learnt, self._lessons = other._learnt, other._lessons

    def learn_quirk(self, model: str, quirk: str, tenant: str = "") -> None:
        """Remember what a refusal gave away about a model."""
        key = model[:LONGEST_NAME], tenant
        self._lessons.put(key, (self._lessons.get(key) or frozenset()) | {quirk})

    def label(self, model: str) -> str:
        """A name for metrics, of a bounded set: the registry's or the configuration's own, or `other`."""
        found = self._find(model)
        return found.name if found.known else "other"

    def _find(self, model: str) -> Model:
        model = model[:LONGEST_NAME]
        return self._models.get(model) or self._resolve(model)

    def _resolve(self, model: str) -> Model:
        """Put together what the table, the family and the configuration say, and keep it."""
        name = model.strip().lower()
        row = self._table.find(name)
        quirks = [*self._table.family(name), *_claude_quirks(name), *(row.quirks if row else ())]
        found = Model(
            name=row.name if row else model,
            context_window=row.context_window if row else UNKNOWN_WINDOW,
            encoding=row.encoding if row else "o200k_base",
            quirks=_merged(quirks),
            known=row is not None,
        )
        if (chosen := self._override(name)) is not None:
            key, override = chosen
            found = replace(
                found,
                name=found.name if found.known else key,
                context_window=override.context_window or found.context_window,
                encoding=override.encoding or found.encoding,
                quirks=_merged([*quirks, *override.quirks]),
                known=found.known or override.context_window is not None,
            )
        self._models.put(model, found)
        if not found.known:
            self._warn_once(model)
        return found

    def _override(self, name: str) -> tuple[str, Override] | None:
        if name in self._overrides:
            return self._overrides[name]
        return next((self._overrides[key] for glob, key in self._globs if glob.match(name)), None)

    def _warn_once(self, model: str) -> None:
        if model in self._warned or len(self._warned) >= BOUND:
            return
        self._warned.add(model)
        key = json.dumps(model)  # quotes and escapes: a client chose this name
        self._warn(
            f"No context window is known for the model {key}: {UNKNOWN_WINDOW:,} tokens are assumed, so it may be "
            f"compacted too early. Add to the configuration: models: {{{key}: {{context_window: …}}}}"
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `models.json`."""

    name: str
    context_window: int
    encoding: str = "o200k_base"
    quirks: tuple[str, ...] = ()


class Table:
    """The rows of `models.json`, found by their name, by another spelling of it, or by a glob among them."""

    def __init__(self, rows: Iterable[Row], families: Iterable[tuple[str, Collection[str]]] = ()) -> None:
        rows = sorted(rows, key=lambda row: row.context_window)  # two hosts of one model: the smaller window errs early
        self._rows = {row.name: row for row in rows if not _is_glob(row.name)}
        self._spellings: dict[str, Row] = {}
        for row in self._rows.values():
            self._spellings.setdefault(_spelling(_bare(row.name)), row)
        self._released: dict[str, Row] = {}  # what drops its -latest or -preview is found, but not its dated variants
        for row in self._rows.values():
            self._released.setdefault(_spelling(_RELEASE.sub("", _bare(row.name))), row)
        globs = sorted((row for row in rows if _is_glob(row.name)), key=lambda row: -len(row.name))
        self._globs = [(re.compile(translate(row.name)), row) for row in globs]
        self._families = [(re.compile(translate(glob)), tuple(quirks)) for glob, quirks in families]

    def find(self, name: str) -> Row | None:
        """The row for a lower-case name, None if there is none that is safe to take."""
        if name in self._rows:
            return self._rows[name]
        for peeled in _peelings(name):
            if (row := self._spellings.get(_spelling(peeled))) is not None:
                return row
        bare = _bare(name)
        released = self._released.get(_spelling(bare))
        return released or next((row for glob, row in self._globs if glob.match(bare)), None)

    def family(self, name: str) -> Iterator[str]:
        """The quirks that go with a name whether there is a row for it or not, from general to special."""
        bare = _bare(name)
        for glob, quirks in self._families:
            if glob.match(bare):
                yield from quirks


@cache
def shipped() -> Table:
    """The checked-in `models.json`."""
    data = json.loads(Path(__file__).with_name("models.json").read_bytes())
    rows = (
        Row(name, about["context_window"], about.get("encoding", "o200k_base"), tuple(about.get("quirks", ())))
        for name, about in data["models"].items()
    )
    return Table(rows, data["families"].items())


# Prefixes: paths (accounts/…/models/x, openai/x, models/x, an ARN), fine-tunes (ft:x:…), regions and vendors (us.vendor.x).
_VENDOR = re.compile(r"^(?:(?:[a-z][a-z-]*\.)+(?=[a-z]{2}|o\d)|(?:anthropic|databricks|openai)-)")
_FINE_TUNE = re.compile(r"ft:([^:]+)")
# Suffixes that leave the window as it is: dates, releases, routes and prices of hosts, number formats, degrees of thinking.
# Four digits are no date: mistral-large-2402 took 32,000 tokens, -2407 128,000, -2512 262,144; kimi and qwen alike.
_SUFFIX = re.compile(
    r"(?:@[^@]*|\[1m]|(?:-\d)?:\d+|[-:](?:\d{4}-\d\d-\d\d|\d\d-\d{4}|\d\d-\d\d|\d{8}|\d{3}|v[12]"
    r"|latest|preview|exp|experimental|beta|stable|free|nitro|floor|online|exacto|extended|maas|tee|us|eu|global|spot"
    r"|fp8|bf16|nvfp4|thinking|think|reasoning|non-reasoning|none|minimal|low|medium|high|xhigh))$"
)
_RELEASE = re.compile(r"-(?:latest|preview)$")
_POINT = re.compile(r"(?<=\d)[.p](?=\d)|(?<=[a-z])\.(?=[a-z]\d)")
_V = re.compile(r"(?<![a-z0-9])v(?=\d)")
_CLAUDE_ORDER = re.compile(r"^claude-(\d{1,2})-(?:(\d)-)?([a-z]+)")
_CLAUDE_VERSION = re.compile(r"claude\D*?(\d{1,2})(?![\da-z])(?:[-.](\d{1,2})(?![\da-z]))?")

# From which version on, whatever the family is called. source: https://platform.claude.com/docs/en/build-with-claude/thinking,
# …/preserved-thinking, …/token-counting (about 30 % more tokens from 4.7 on), …/vision. That Claude counts 1.2 tokens for
# one of o200k_base is no published figure: 16 % (prose) to 30 % (code) were measured for the tokeniser before 4.7.
_CLAUDE_SINCE: tuple[tuple[tuple[int, int], tuple[str, ...]], ...] = (
    ((0, 0), ("token_ratio=1.2", "image_max_edge=1568", "image_max_tokens=1568")),
    ((4, 6), ("adaptive_thinking",)),
    ((4, 7), ("no_manual_thinking", "no_sampling", "token_ratio=1.5", "image_max_edge=2576", "image_max_tokens=4784")),
    ((5, 1), ("binds_thinking",)),
)


def _peelings(name: str) -> Iterator[str]:
    """The name without its prefixes, then with one harmless suffix less each time, up to six."""
    peeled = _bare(name)
    for _ in range(7):
        yield peeled
        peeled = _SUFFIX.sub("", peeled)


def _bare(name: str) -> str:
    """The name without the prefixes of hosts and vendors."""
    if tuned := _FINE_TUNE.match(name):
        name = tuned[1]
    name = name.partition("#")[0].rsplit("/", 1)[-1]
    return _VENDOR.sub("", name)


def _spelling(bare: str) -> str:
    """One form for what is written in several ways: 4.5, 4p5, 4-5, v4.5; x.r1, x-r1; claude-4-5-opus, claude-opus-4-5."""
    text = _V.sub("", _POINT.sub("-", bare))
    return _CLAUDE_ORDER.sub(lambda found: "-".join(filter(None, ("claude", found[3], found[1], found[2]))), text)


def _claude_quirks(name: str) -> Iterator[str]:
    if found := _CLAUDE_VERSION.search(name):
        version = (int(found[1]), int(found[2] or 0))
        for since, quirks in _CLAUDE_SINCE:
            if version >= since:
                yield from quirks


def _merged(quirks: Iterable[str]) -> frozenset[str]:
    """Later ones replace earlier ones of the same name, `-name` takes one away."""
    merged: dict[str, str] = {}
    for quirk in quirks:
        name = quirk.partition("=")[0]
        if name.startswith("-"):
            merged.pop(name[1:], None)
        else:
            merged[name] = quirk
    return frozenset(merged.values())


def _is_glob(name: str) -> bool:
    return any(sign in name for sign in "*?[")
