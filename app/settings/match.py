"""Which requests a policy or an upstream is meant for. Globs are compiled once, since every request asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from functools import cached_property

from pydantic import BaseModel, ConfigDict

from app.settings.values import Format, Glob, Headers

OPTIONS = ConfigDict(
    frozen=True,
    extra="forbid",
    use_attribute_docstrings=True,
    hide_input_in_errors=True,
)


def globs(patterns: Iterable[str]) -> Callable[[str], bool]:
    """A test for "some pattern matches the whole of this", upper and lower case being different; no pattern, no match."""
    joined = "|".join(translate(pattern) for pattern in patterns)
    match = re.compile(joined or r"(?!)").match
    return lambda text: match(text) is not None


class Match(BaseModel):
    """The requests that a policy is for. All given conditions must hold; an empty one holds always."""

    model_config = OPTIONS

    models: tuple[Glob, ...] = ("*",)
    """Globs of model names as the client writes them, for example `claude-*`. One must match."""

    formats: tuple[Format, ...] = ()
    """Wire formats, for example `anthropic-messages`. Empty: all."""

    upstreams: tuple[str, ...] = ()
    """Names of upstreams that the request goes to. Empty: all."""

    headers: Headers = {}
    """Request headers and the glob that each one's value must match, for example `x-team: "search-*"`. A header that the
    request lacks doesn't match. Names are compared without regard to case."""

    def covers(self, model: str, format: str, upstream: str, headers: Mapping[str, str]) -> bool:
        """Whether a request is meant. `headers` has lower-case names."""
        if self.formats and format not in self.formats:
            return False
        if self.upstreams and upstream not in self.upstreams:
            return False
        if self.models and not self._model(model):
            return False
        return all(name in headers and matches(headers[name]) for name, matches in self._headers)

    @cached_property
    def _model(self) -> Callable[[str], bool]:
        return globs(self.models)

    @cached_property
    def _headers(self) -> tuple[tuple[str, Callable[[str], bool]], ...]:
        return tuple((name, globs([pattern])) for name, pattern in self.headers.items())
