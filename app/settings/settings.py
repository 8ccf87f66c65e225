"""The settings as the rest of compactd sees them: sections that fit together, and the questions that requests ask of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pydantic import model_validator

from app.settings.broken import refuse
from app.settings.policy import Policy
from app.settings.rules import broken
from app.settings.sections import Sections


class Settings(Sections):
    """Every option of compactd. Immutable; `Settings()` holds the defaults, whatever the environment says."""

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        refuse(broken(self))
        return self

    def after(self, before: Settings) -> Settings:
        """What a reload leads to: these settings, with what only a start can change as it was. Raises ValidationError where the two do not
        fit together: an address that is still open to the network, say, and no keys any more."""
        kept = {"listen": before.listen, "store": before.store}
        return Settings(**({name: getattr(self, name) for name in type(self).model_fields} | kept))

    def policy_for(self, model: str, format: str, upstream: str, headers: Mapping[str, str]) -> Policy | None:
        """The first policy that matches, or None: then the request passes untouched. `headers` has lower-case names."""
        for policy in self.policies:
            if policy.match.covers(model, format, upstream, headers):
                return policy
        return None

    def policy_named(self, name: str) -> Policy | None:
        """The policy of that name (`x-compactd-policy`), or None."""
        return next((policy for policy in self.policies if policy.name == name), None)

    def timeouts(self, upstream: str) -> tuple[float, float]:
        """(connect, read) in seconds for a configured upstream; raises KeyError for any other name."""
        own = self.upstreams[upstream]
        return own.connect_timeout or self.limits.connect_timeout, own.read_timeout or self.limits.read_timeout

    @cached_property
    def public_base(self) -> str:
        """How clients reach us, without a slash at the end: what archive addresses begin with."""
        host = self.listen.host.strip("[]")
        if host in ("0.0.0.0", "::"):  # every network; the one that is certain is this machine's own
            host = "localhost"
        elif ":" in host:
            host = f"[{host}]"
        return self.listen.public_url or f"http://{host}:{self.listen.port}"
