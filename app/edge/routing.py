"""Which upstream a path belongs to, what is sent there, and whether it carries a conversation.

Decided on the raw path, so that percent-encoding reaches the provider as the client wrote it. The first segment is an upstream's name, or
the path's format says where it goes; a model glob can still choose another upstream once the body is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from app.formats import FORMATS
from app.formats.base import Target
from app.settings import Settings, Upstream

_OWN = frozenset({"/compactd", "/metrics", "/livez", "/readyz", "/healthz"})
_FAMILIES = (
    # What a path without a conversation looks like, per format, for choosing an upstream (models, files, batches, …).
    ("anthropic-messages", ("/v1/messages", "/v1/complete", "/v1/skills")),
    (
        "gemini",
        (
            "/v1beta",
            "/models/",
            "/v1/models/gemini",
            "/upload/v1beta",
            "/v1/interactions",
            "/tunedModels/",
            "/v1/projects/",
        ),
    ),
)


_MODEL_IN_PATH = re.compile(r"/(?:models|deployments)/([^/:]+)[/:]")
"""For counting and embedding at Gemini's and Azure's addresses."""
REMEMBERED_PATH = 256
"""Bytes; what is longer is routed anew each time, or strangers could fill the memory with paths."""


def climbs(raw: bytes) -> bool:
    """Do segments `..` lead out of the upstream's own base path, in whatever spelling an upstream may read them?"""
    path = raw
    for _ in range(2):  # %252e is %2e behind a server that decodes twice
        path = unquote_to_bytes(path)
        depth = 0
        for segment in path.replace(b"\\", b"/").split(b"/") if b".." in path else ():
            depth += -1 if segment == b".." else segment not in (b"", b".")
            if depth < 0:
                return True
    return False


def is_own(path: str) -> bool:
    """Does compactd serve this path itself?"""
    return path in _OWN or path.startswith("/compactd/")


@dataclass(frozen=True, slots=True)
class Route:
    """`upstream` is "" where none serves the path. `path` is what goes to it, raw, without its base path; `named` says that the client
    chose it by prefix; `format` is the one that an answer of our own is given in, on paths without a conversation too."""

    upstream: str
    path: bytes
    target: Target | None
    format: str
    named: bool = False


class Router:
    def __init__(self, settings: Settings) -> None:
        self._upstreams: Mapping[str, Upstream] = settings.upstreams
        self._by_format: dict[str, str] = {}
        for name, upstream in settings.upstreams.items():
            for form in upstream.formats:
                if not upstream.models:
                    self._by_format.setdefault(form, name)
        for name, upstream in settings.upstreams.items():
            for form in upstream.formats:
                self._by_format.setdefault(form, name)
        self._globbed = [(name, upstream) for name, upstream in settings.upstreams.items() if upstream.models]
        self._remembered = lru_cache(maxsize=1024)(self._route)

    def route(self, raw: bytes, anthropic: bool) -> Route:
        """`anthropic` says that the client sent an `anthropic-version` header."""
        return (self._remembered if len(raw) <= REMEMBERED_PATH else self._route)(raw, anthropic)

    def _route(self, raw: bytes, anthropic: bool) -> Route:
        first, slash, rest = raw[1:].partition(b"/")
        name = first.decode("latin-1")
        if name in self._upstreams and slash and not (name == "openai" and rest.startswith(b"deployments/")):
            path = b"/" + rest
            target, formats = self._target(path), self._upstreams[name].formats
            family = target.format if target else self._family(path, anthropic)
            return Route(name, path, target, family if target or family in formats else formats[0], named=True)
        target = self._target(raw)
        form = target.format if target else self._family(raw, anthropic)
        upstream = self._by_format.get(form)
        if upstream is not None:
            route = Route(upstream, raw, target, form)
            told = None if target else _MODEL_IN_PATH.search(unquote_to_bytes(raw).decode("utf-8", "replace"))
            return replace(route, upstream=self.by_model(route, told[1])) if told else route
        # A conversation brings a key that is meant for one provider: among several, no guess may send it to another.
        guess = not target or len(self._upstreams) == 1
        return Route(next(iter(self._by_format.values()), "") if guess else "", raw, None, form)

    @staticmethod
    def _target(raw: bytes) -> Target | None:
        path = unquote_to_bytes(raw).decode("utf-8", "replace")
        for form in FORMATS.values():
            target = form.target(path)
            if target is not None:
                return target
        return None

    @staticmethod
    def _family(raw: bytes, anthropic: bool) -> str:
        path = unquote_to_bytes(raw).decode("utf-8", "replace")
        if anthropic:
            return "anthropic-messages"
        for form, starts in _FAMILIES:
            if path.startswith(starts):
                return form
        return "openai-chat"

    def by_model(self, route: Route, model: str) -> str:
        """The upstream for this model: one whose globs match and that serves the format, unless the client named another."""
        if route.named:
            return route.upstream
        for name, upstream in self._globbed:
            if route.format in upstream.formats and upstream.claims(model):
                return name
        return route.upstream

    def needs_model(self, route: Route) -> bool:
        """Could the model in the body choose another upstream than the path does?"""
        if route.named or (route.target and route.target.model):
            return False
        return any(route.format in upstream.formats and name != route.upstream for name, upstream in self._globbed)
