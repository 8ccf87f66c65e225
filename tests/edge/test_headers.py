"""Headers as lists of pairs: what `forwarded` and `returned` leave out, put right and add; credentials, tenants, session names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.edge.headers import (
    Headers,
    Pair,
    credentials,
    credentials_hash,
    own_query,
    request_headers,
    response_headers,
    session_name,
    without_key,
)
from app.formats import FORMATS
from app.formats.base import Target
from app.settings import Upstream

OPEN = Upstream(base_url="https://provider.test", formats=tuple(FORMATS))
KEYED = Upstream(base_url="https://provider.test", formats=tuple(FORMATS), api_key="sk-own")
TOLD: list[Pair] = [(b"x-compactd-outcome", b"passed")]

names = st.from_regex(re.compile(rb"\A(?!x-compactd-|host\Z|content-|expect\Z)[a-z][a-z0-9-]{0,20}\Z"))
values = st.binary(max_size=30).filter(lambda value: not set(value) & set(b"\r\n\0"))
HOP = {
    b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"http2-settings",
}  # fmt: skip


def sent(
    *raw: Pair, length: int | None = None, drop_coding: bool = False, upstream: Upstream = OPEN, **more: object
) -> list[Pair]:
    pairs = request_headers(list(raw), b"provider.test", length, drop_coding, upstream, None, **more)  # type: ignore[arg-type]
    assert pairs[0] == (b"host", b"provider.test")
    return pairs[1:]


@settings(deadline=None)
@given(st.lists(st.tuples(names, values), max_size=12))
def test_everything_but_hop_by_hop_headers_passes_in_order_both_ways(raw: list[Pair]) -> None:
    kept = [pair for pair in raw if pair[0] not in HOP]
    assert sent(*raw) == kept
    given_back = response_headers(raw, 200, TOLD)
    assert [pair for pair in given_back if pair[0] not in (b"x-accel-buffering", b"cache-control")] == [
        pair for pair in kept if pair[0] not in (b"x-accel-buffering", b"cache-control")
    ] + TOLD


@settings(deadline=None)
@given(st.lists(names, min_size=1, max_size=5), st.sampled_from([b",", b", ", b" ,\t"]))
def test_what_connection_names_stays_here(named: list[bytes], comma: bytes) -> None:
    raw = [(b"connection", comma.join(name.upper() for name in named)), *((name, b"v") for name in named)]
    assert sent(*raw) == []
    assert response_headers(raw, 200, []) == []


def test_length_is_told_once_and_last() -> None:
    assert sent((b"content-length", b"5"), (b"a", b"b"), length=7) == [(b"a", b"b"), (b"content-length", b"7")]
    assert sent((b"content-length", b"5")) == []


def test_coding_goes_with_the_body() -> None:
    assert sent((b"content-encoding", b"gzip")) == [(b"content-encoding", b"gzip")]
    assert sent((b"content-encoding", b"gzip"), drop_coding=True) == []


def test_beta_is_added_beside_the_clients_own() -> None:
    own = (b"anthropic-beta", b"context-1m")
    assert sent(own, beta="drop-thinking") == [own, (b"anthropic-beta", b"drop-thinking")]
    assert sent((b"anthropic-beta", b"a, drop-thinking"), beta="drop-thinking") == [
        (b"anthropic-beta", b"a, drop-thinking")
    ]


def test_beta_is_taken_out_of_the_clients_own() -> None:
    raw = [(b"anthropic-beta", b"a,gone,b"), (b"anthropic-beta", b" gone "), (b"x", b"gone")]
    assert sent(*raw, without_beta="gone") == [(b"anthropic-beta", b"a,b"), (b"x", b"gone")]


@pytest.mark.parametrize("form", FORMATS)
def test_injected_key_stands_where_the_format_wants_it(form: str) -> None:
    pairs = request_headers(
        [(b"authorization", b"Bearer c"), (b"x-api-key", b"c")], b"h", None, False, KEYED, Target(form)
    )
    name = {"anthropic-messages": b"x-api-key", "gemini": b"x-goog-api-key"}.get(form, b"authorization")
    assert pairs == [(b"host", b"h"), (name, b"Bearer sk-own" if name == b"authorization" else b"sk-own")]


def test_an_upstreams_own_headers_replace_the_clients() -> None:
    upstream = Upstream(
        base_url="https://p.test", formats=("openai-chat",), headers={"X-Team": "a", "user-agent": "compactd"}
    )
    assert sent((b"x-team", b"b"), (b"user-agent", b"sdk"), (b"y", b"z"), upstream=upstream) == [
        (b"y", b"z"), (b"x-team", b"a"), (b"user-agent", b"compactd"),
    ]  # fmt: skip


def test_request_of_our_own_leaves_out_what_belongs_to_the_clients_one() -> None:
    raw = [
        (b"authorization", b"Bearer c"), (b"accept", b"text/event-stream"), (b"accept-encoding", b"br"), (b"idempotency-key", b"1"),
        (b"x-stainless-retry-count", b"2"), (b"anthropic-beta", b"b"), (b"content-type", b"text/plain"), (b"content-encoding", b"gzip"),
    ]  # fmt: skip
    pairs = request_headers(raw, b"h", 3, True, OPEN, Target("anthropic-messages"), fresh=True)
    assert pairs == [
        (b"host", b"h"), (b"authorization", b"Bearer c"), (b"anthropic-beta", b"b"), (b"content-type", b"application/json"),
        (b"anthropic-version", b"2023-06-01"), (b"content-length", b"3"),
    ]  # fmt: skip


def test_another_body_goes_under_another_idempotency_key() -> None:
    raw = [(b"idempotency-key", b"mine"), (b"x-stainless-retry-count", b"1"), (b"x-request-id", b"r")]
    first, second, again = (request_headers(raw, b"h", 3, True, OPEN, None, attempt=attempt) for attempt in (1, 2, 2))
    assert (b"idempotency-key", b"mine") in first
    assert (b"idempotency-key", b"mine-2") in second
    assert [pair for pair in first if pair not in second] == [(b"idempotency-key", b"mine")]
    assert second == again


@pytest.mark.parametrize("status", [204, 304])
def test_answer_without_a_body_has_no_length(status: int) -> None:
    assert response_headers([(b"Content-Length", b"9"), (b"ETag", b"x")], status, TOLD) == [(b"etag", b"x"), *TOLD]
    assert response_headers([(b"Content-Length", b"9")], 200, TOLD) == [(b"content-length", b"9"), *TOLD]


def test_what_a_compactd_further_on_tells_of_the_request_is_not_told_beside_our_own() -> None:
    raw = [(b"X-Compactd-Outcome", b"passed"), (b"a", b"b"), (b"x-compactd-archive", b"http://there")]
    assert response_headers(raw, 200, TOLD) == [(b"a", b"b"), *TOLD]


def test_headers_are_a_mapping_of_first_values() -> None:
    headers = Headers([(b"a", b"1"), (b"b", b"gr\xfc\xdf"), (b"a", b"2")])
    assert dict(headers) == {"a": "1", "b": "gr\xfc\xdf"}
    assert len(headers) == 2
    assert headers.get("c", "") == ""


@pytest.mark.parametrize(
    ("raw", "query", "found"),
    [
        ([(b"authorization", b"Bearer k")], b"", ["k"]),
        ([(b"authorization", b"bEARER  k ")], b"", ["k"]),
        ([(b"authorization", b"Basic eDp5")], b"", ["Basic eDp5"]),
        ([(b"authorization", b"Bearer"), (b"x-api-key", b"k")], b"", ["Bearer", "k"]),
        ([(b"x-goog-api-key", b"k"), (b"api-key", b"l")], b"key=m&key=n", ["k", "l", "m", "n"]),
        ([], b"a=1&key=m%2B1", ["m+1"]),
        ([], b"monkey=1", []),
        ([], b"", []),
    ],
)
def test_credentials(raw: list[Pair], query: bytes, found: list[str]) -> None:
    assert credentials(Headers(raw), query) == found


def test_tenants_differ_by_credentials_alone() -> None:
    def tenant(*raw: Pair, query: bytes = b"") -> str:
        return credentials_hash(Headers(raw), query)

    assert tenant((b"x-api-key", b"a")) == tenant((b"user-agent", b"x"), (b"x-api-key", b"a"))
    assert tenant((b"x-api-key", b"a")) != tenant((b"x-api-key", b"b"))
    assert tenant(query=b"key=a") != tenant(query=b"key=b")
    assert tenant() == "anonymous"
    assert "secret" not in tenant((b"x-api-key", b"secret"))


@pytest.mark.parametrize(
    ("query", "left"),
    [(b"key=a", b""), (b"alt=sse&key=a&b=%20", b"alt=sse&b=%20"), (b"monkey=1&key", b"monkey=1&key"), (b"", b"")],
)
def test_query_without_the_clients_key(query: bytes, left: bytes) -> None:
    assert without_key(query) == left


def test_session_names() -> None:
    def named(hint: str = "", **raw: str) -> str:
        return session_name(
            Headers([(name.replace("__", "-").encode(), value.encode()) for name, value in raw.items()]), hint
        )

    assert named(x__compactd__session="team/a:1@x.y-z") == "team/a:1@x.y-z"
    assert named("hint", x__compactd__session="mine") == "mine"
    hashed = named(x__compactd__session="has spaces\x7f")
    assert re.fullmatch(r"s-[0-9a-f]{20}", hashed)
    assert named("user_1") == named("user_1") != named("user_2")
    assert "user" not in named("user_1")
    assert named(session_id="a") == named(conversation_id="a") == named("a")
    assert named() == ""
    assert named(x__compactd__session="x" * 129).startswith("s-")


@pytest.mark.parametrize(
    ("query", "keyed", "own"),
    [
        (b"", False, b""),
        (b"alt=sse", False, b""),
        (b"api-version=1&alt=sse&key=k&", False, b"?api-version=1&key=k"),
        (b"%24alt=sse&key=k&api-version=1", True, b"?api-version=1"),
        (b"$alt=sse&key=k", True, b""),
    ],
)
def test_a_call_of_our_own_asks_for_no_stream_and_brings_one_key(query: bytes, keyed: bool, own: bytes) -> None:
    assert own_query(query, keyed) == own
