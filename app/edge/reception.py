"""Finding out what a request is: whether it may come in, whose it is, which model, policy and session it belongs to."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace

from app.edge.access import from_own_machine
from app.edge.bodies import always, open_coding
from app.edge.exchange import Exchange, Refused
from app.edge.headers import credentials, credentials_hash, digest, session_name
from app.edge.routing import Route, climbs
from app.errors import NotCompactable
from app.formats import FORMATS
from app.formats.base import Format, Target
from app.formats.reading import Opened, model_in, open_body
from app.request import Ask
from app.settings import Client, Policy
from app.settings.values import nearest

_SIGNATURES = frozenset({"content-digest", "digest", "content-md5", "signature", "x-amz-content-sha256"})
"""Headers that speak of the body's very bytes: a changed one would be refused (F15)."""


def admit(exchange: Exchange, refusing: bool, inflight: int) -> None:
    """Refuse what compactd does not serve at all, and what it can't take on now."""
    if "websocket" in exchange.headers.get("upgrade", "").lower():
        raise Refused(
            426, "websocket_unsupported", "compactd does not tunnel WebSockets; send the request as HTTP POST."
        )
    if exchange.scope["method"] == "TRACE":
        raise Refused(405, "method_not_allowed", "compactd forwards no TRACE: its answer repeats credentials.")
    path = exchange.route.path if exchange.route else b"/"
    if not path.startswith(b"/") or ((b"." in path or b"%" in path) and climbs(path)):
        raise Refused(400, "bad_path", "The path must begin with / and not climb above it with segments `..`.")
    if refusing:
        raise Refused(503, "draining", "This compactd is shutting down; try again, another one will answer.")
    if inflight > exchange.wiring.settings.limits.max_inflight:
        raise Refused(503, "too_many_requests_inflight", "compactd is at `limits.max_inflight`; try again later.")


def recognised(exchange: Exchange, route: Route) -> None:
    """Refuse a stranger before its body is taken in, where every upstream that it could be for asks for a key of ours."""
    wiring = exchange.wiring
    upstreams = wiring.settings.upstreams
    meant = [upstreams[route.upstream], *(one for one in upstreams.values() if route.format in one.formats)]
    if wiring.keys and all(one.brings_credentials for one in meant) and not _holders(exchange):
        raise _stranger()


def authenticate(exchange: Exchange, upstream: str) -> None:
    """Where compactd brings the credentials, the client has to bring a key of `auth`, one good for this upstream. Where it does not, such a
    key has no business: the provider must not learn it."""
    wiring = exchange.wiring
    brings = wiring.settings.upstreams[upstream].brings_credentials
    if not wiring.keys:
        if brings and not from_own_machine(wiring.settings, exchange.headers):
            raise Refused(
                403, "not_at_home", "compactd adds a key here and asks for none, so it serves this machine's own programs under a "
                "loopback name only. Use 127.0.0.1, list clients' keys in `auth.keys`, or set `listen.public_url` to that name.",
            )  # fmt: skip
        return
    holders = _holders(exchange)
    if not brings:
        if holders:
            raise Refused(401, "own_key", "This is a key of compactd's own; here the provider's own key is needed.")
        return
    if not holders:
        raise _stranger()
    exchange.holder = holder = holders[0]
    if holder and holder.upstreams and upstream not in holder.upstreams:
        raise Refused(403, "upstream_not_allowed", "This key is not good for this upstream (`auth.clients`).")


def _holders(exchange: Exchange) -> list[Client | None]:
    """Whose keys came with the request; None stands for one of `auth.keys`. All are compared, each in constant time."""
    given = [digest(key) for key in credentials(exchange.headers, exchange.scope["query_string"])]
    return [client for key, client in exchange.wiring.keys if any([hmac.compare_digest(key, one) for one in given])]


def _stranger() -> Refused:
    return Refused(401, "unknown_key", "Send one of compactd's own keys (`auth`) where the provider's key would go.")


def direct_unread(exchange: Exchange, route: Route, too_large: bool) -> Route:
    """Where a body goes that is passed on as it comes. Refused where only a model in it could tell: it brings a key that is meant for one
    provider."""
    if exchange.wiring.router.needs_model(route):
        if too_large:
            raise Refused(
                413, "body_too_large", "Its model decides where this request goes, and it is over `limits.max_body_bytes`: put the "
                "upstream's name first in the path.",
            )  # fmt: skip
        raise Refused(503, "no_room", "compactd is at `limits.max_held_bytes`; try again later.")
    _direct(exchange, route, route.target.model if route.target else "")
    assert exchange.route is not None
    return exchange.route


def direct_beside(exchange: Exchange, route: Route) -> str:
    """Who is asked for a path without a conversation: counting, embedding and others name a model as well."""
    return _direct(exchange, route, _model_of(exchange))


def _direct(exchange: Exchange, route: Route, model: str) -> str:
    """The upstream that this model is asked at."""
    wiring = exchange.wiring
    upstream = wiring.router.by_model(route, model)
    if upstream != route.upstream:
        exchange.route = replace(route, upstream=upstream)
    exchange.record.upstream = upstream
    if model:
        exchange.record.model = wiring.registry.label(model)
    return upstream


def _model_of(exchange: Exchange) -> str:
    """Of a body that can't be looked into otherwise."""
    try:
        limit = exchange.wiring.settings.limits.max_body_bytes
        return model_in(open_coding(exchange.raw, exchange.headers.get("content-encoding", ""), limit))
    except NotCompactable:
        return ""


def _opened(exchange: Exchange, form: Format, room: Callable[[int], bool]) -> Opened:
    """Raises NotCompactable."""
    limits = exchange.wiring.settings.limits
    coding, limit = exchange.headers.get("content-encoding", ""), limits.max_body_bytes
    if len(exchange.raw) > limit:
        raise NotCompactable("too_large")
    if not _SIGNATURES.isdisjoint(exchange.headers) or exchange.headers.get("authorization", "").startswith("AWS4-"):
        raise NotCompactable("signed")
    body = open_coding(exchange.raw, coding, limit) if coding else exchange.raw
    if body is not exchange.raw and not room(len(body)):
        room(-len(body))
        raise NotCompactable("no_room")
    opened = open_body(form, body)
    if len(opened.raws) > limits.max_items:
        raise NotCompactable("too_many_items")
    return opened


def ask_of(exchange: Exchange, route: Route, target: Target, room: Callable[[int], bool] = always) -> Ask:
    """Look into the body; one that comes compressed needs `room` for so many more bytes. Raises NotCompactable where there is nothing to
    look into, Refused for what the client got wrong."""
    wiring, scope = exchange.wiring, exchange.scope
    settings, form = wiring.settings, FORMATS[target.format]
    try:
        opened = _opened(exchange, form, room)
        name = opened.model or target.model
    except NotCompactable:
        _direct(exchange, route, _model_of(exchange) or target.model)
        raise
    upstream = _direct(exchange, route, name)
    authenticate(exchange, upstream)
    policy = _policy(exchange, name, form.name, upstream)
    if policy is None:
        raise NotCompactable("no_policy")
    tenant = credentials_hash(exchange.headers, scope["query_string"])
    model = wiring.registry.lookup(name, upstream, tenant)
    quirks = settings.upstreams[upstream].quirks
    if quirks:
        model = model.with_quirks(quirks)
    session = session_name(exchange.headers, form.session_hint(opened.fields))
    return Ask(
        opened, form.name, upstream, model, policy, tenant, session, name, route.path.decode("latin-1"), scope["headers"],
        scope["query_string"],
    )  # fmt: skip


def _policy(exchange: Exchange, model: str, form: str, upstream: str) -> Policy | None:
    settings, headers = exchange.wiring.settings, exchange.headers
    wanted = headers.get("x-compactd-policy")
    bound = exchange.holder.policy if exchange.holder else None
    if bound is not None and wanted not in (None, bound):
        raise Refused(403, "policy_not_allowed", "This key has a policy of its own (`auth.clients`).")
    wanted = bound or wanted
    if wanted is None:
        policy = settings.policy_for(model, form, upstream, headers)
    else:
        policy = settings.policy_named(wanted)
        if policy is None:
            # Where keys are asked for, names are for those who have one.
            told = not exchange.wiring.keys or settings.upstreams[upstream].brings_credentials
            hint = nearest(wanted[:100], [policy.name for policy in settings.policies]) if told else ""
            text = f"There is no policy named {wanted[:100]!r} in compactd's configuration{hint or '.'}"
            raise Refused(400, "unknown_policy", text)
    mode = headers.get("x-compactd-mode")
    if mode is None or policy is None:
        return policy
    if mode not in ("on", "observe", "off"):
        raise Refused(400, "unknown_mode", f"x-compactd-mode is {mode[:100]!r}; it must be on, observe or off.")
    return policy.model_copy(update={"mode": mode})
