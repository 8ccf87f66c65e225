"""The request as it goes out, and httpx's exceptions as ours."""

from __future__ import annotations

import inspect

import httpx
import pytest

from app.edge.forwarding import address, upstream_failure

ALL = [
    error
    for _, error in inspect.getmembers(httpx, inspect.isclass)
    if issubclass(error, httpx.TransportError) and error is not httpx.TransportError
]


@pytest.mark.parametrize("error", ALL)
def test_every_failure_has_a_code_and_names_the_host(error: type[httpx.TransportError]) -> None:
    failed = upstream_failure(error("what went wrong"), "provider.test:8000")
    assert "provider.test:8000" in str(failed)
    assert failed.code.replace("_", "").isalpha()
    assert failed.status in (400, 502, 503, 504)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (httpx.ConnectError, 502, "upstream_unreachable"),
        (httpx.ProxyError, 502, "upstream_unreachable"),
        (httpx.UnsupportedProtocol, 502, "upstream_unreachable"),
        (httpx.ReadError, 502, "upstream_broke_off"),
        (httpx.WriteError, 502, "upstream_broke_off"),
        (httpx.RemoteProtocolError, 502, "upstream_broke_off"),
        (httpx.ConnectTimeout, 504, "upstream_connect_timeout"),
        (httpx.ReadTimeout, 504, "upstream_timeout"),
        (httpx.WriteTimeout, 504, "upstream_timeout"),
        (httpx.PoolTimeout, 503, "upstream_pool_exhausted"),
        (httpx.LocalProtocolError, 400, "bad_request"),
    ],
)
def test_failures(error: type[httpx.TransportError], status: int, code: str) -> None:
    failed = upstream_failure(error("what went wrong"), "provider.test")
    assert (failed.status, failed.code) == (status, code)


def test_what_went_wrong_in_connecting_is_told() -> None:
    """An operator has to know that it is the certificate; the texts come from `app.edge.upstream.faults` and hold no secret."""
    assert "certificate" in str(
        upstream_failure(httpx.ConnectError("the TLS certificate of a:443 is not trusted: self-signed"), "a")
    )
    assert str(upstream_failure(httpx.ConnectError("could not connect to a:443: Connection refused"), "a")) == (
        "Could not connect to a:443: Connection refused."
    )


@pytest.mark.parametrize(
    ("base", "path", "host"),
    [
        ("https://api.openai.com", b"", b"api.openai.com"),
        ("https://api.fireworks.ai/inference/", b"/inference", b"api.fireworks.ai"),
        ("http://127.0.0.1:8000/a%20b", b"/a%20b", b"127.0.0.1:8000"),
        ("http://[::1]:8000", b"", b"[::1]:8000"),
    ],
)
def test_addresses(base: str, path: bytes, host: bytes) -> None:
    url, base_path, netloc = address(base)
    assert (base_path, netloc) == (path, host)
    assert url.host
    assert address(base)[0] is url
