"""What must hold between sections.

Each rule names the options whose default could break it where their own value had a fault, so that `load` can still ask it when other
options have faults: everything that is wrong is told at once, and nothing is told that only follows from another fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from urllib.parse import urlsplit

from app.settings.broken import Broken
from app.settings.policy import EXTRACTIVE, Policy
from app.settings.sections import Sections
from app.settings.values import nearest

# first path segments that compactd or a wire format needs itself
_TAKEN = frozenset({"v1", "v1beta", "models", "compactd", "livez", "readyz", "healthz", "metrics"})


Option = tuple[str, ...]
"""An option by its keys alone, whichever entry it is in: `("upstreams", "api_key")`; `<name>` stands for the names of the entries."""


def broken(sections: Sections, unsound: Collection[Option] = ()) -> list[Broken]:
    """All broken rules, but for those that an unsound option would break."""
    return [
        fault
        for reads, rule in _RULES
        if not any(_touches(read, option) for read in reads for option in unsound)
        for fault in rule(sections)
    ]


def _touches(read: str, option: Option) -> bool:
    """Is one of them the other, or around it?"""
    return all(one == other for one, other in zip(read.split("."), option, strict=False))


def _upstream_names(sections: Sections) -> Iterator[Broken]:
    for name in sections.upstreams:
        if name in _TAKEN:
            yield Broken(("upstreams", name), "this name is the beginning of a path of ours; choose another one")


def _own_address(sections: Sections) -> Iterator[Broken]:
    """A request to it would come back, ask for itself again, and take all connections that there are."""
    listen = sections.listen
    here = {listen.host.strip("[]").lower()}
    if listen.loopback or not here.isdisjoint({"0.0.0.0", "::"}):
        here |= {"localhost", "::1" if ":" in listen.host else "127.0.0.1"}
    for name, upstream in sections.upstreams.items():
        url = urlsplit(upstream.base_url)
        if url.scheme == "http" and url.hostname in here and (url.port or 80) == listen.port:
            yield Broken(("upstreams", name, "base_url"), "is compactd's own address (`listen`); write the provider's")


def _policy_names(sections: Sections) -> Iterator[Broken]:
    first: dict[str, int] = {}
    for index, policy in enumerate(sections.policies):
        if first.setdefault(policy.name, index) != index:
            text = f"policies[{first[policy.name]}] has this name already; give each policy its own"
            yield Broken(("policies", index, "name"), text)


def _known_upstreams(sections: Sections) -> Iterator[Broken]:
    known = list(sections.upstreams)
    for index, policy in enumerate(sections.policies):
        for place, name in enumerate(policy.match.upstreams):
            if name not in sections.upstreams:
                text = f"no upstream has this name{nearest(name, known) or '; there are ' + ', '.join(known)}"
                yield Broken(("policies", index, "match", "upstreams", place), text)


def _client_keys(sections: Sections) -> Iterator[Broken]:
    if sections.auth.required or sections.listen.loopback:
        return
    for name, upstream in sections.upstreams.items():
        if upstream.brings_credentials:
            key = "api_key" if upstream.api_key else "headers"
            text = "anybody who can connect could spend this key; list clients' keys in auth.keys or auth.clients, or listen on 127.0.0.1"
            yield Broken(("upstreams", name, key), text)


def _clients(sections: Sections) -> Iterator[Broken]:
    seen = {key.get_secret_value(): "auth.keys" for key in sections.auth.keys}
    for name, client in sections.auth.clients.items():
        other = seen.setdefault(client.key.get_secret_value(), name)
        if other != name:
            yield Broken(("auth", "clients", name, "key"), f"this key is that of {other} too; give each client its own")
        for place, upstream in enumerate(client.upstreams):
            if upstream not in sections.upstreams:
                text = f"no upstream has this name{nearest(upstream, list(sections.upstreams))}"
                yield Broken(("auth", "clients", name, "upstreams", place), text)


def _clients_policies(sections: Sections) -> Iterator[Broken]:
    known = [policy.name for policy in sections.policies]
    for name, client in sections.auth.clients.items():
        if client.policy is not None and client.policy not in known:
            yield Broken(("auth", "clients", name, "policy"), f"no policy has this name{nearest(client.policy, known)}")


def _summary_models(sections: Sections) -> Iterator[Broken]:
    for index, policy in enumerate(sections.policies):
        name, model = policy.summary_target(sections.upstreams)
        if name is None or policy.summary_model == EXTRACTIVE:
            continue
        loc = ("policies", index, "summary_model")
        if not model:
            yield Broken(loc, f"names no model; write {name}:model")
        elif not sections.upstreams[name].brings_credentials and not _can_meet(policy, name, sections):
            text = (
                f"no credentials for it: {name} has no api_key, and this policy's requests go elsewhere; "
                f"set upstreams.{name}.api_key (any word if it needs none)"
            )
            yield Broken(loc, text)


def _can_meet(policy: Policy, name: str, sections: Sections) -> bool:
    """Whether a request that goes to this upstream could fall under the policy; its credentials would serve the summary."""
    match, serves = policy.match, sections.upstreams[name].formats
    return (not match.upstreams or name in match.upstreams) and (
        not match.formats or not set(serves).isdisjoint(match.formats)
    )


_RULES: tuple[tuple[tuple[str, ...], Callable[[Sections], Iterator[Broken]]], ...] = (
    ((), _upstream_names),
    (("listen.host", "listen.port"), _own_address),
    (("policies.name",), _policy_names),
    (("upstreams.<name>",), _known_upstreams),
    (("upstreams.<name>", "upstreams.api_key", "upstreams.headers"), _summary_models),
    (("auth.keys", "auth.clients.<name>"), _client_keys),
    (("upstreams.<name>",), _clients),
    (("policies.name",), _clients_policies),
)
