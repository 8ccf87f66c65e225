from __future__ import annotations

from base64 import b64encode

import httpx
import pytest

from app.edge.upstream.routes import Place, Routes, read_proxy

SECRET = "s%40cret"


def _find(url: str) -> object:
    return Routes().find(httpx.URL(url))


def test_one_route_per_origin() -> None:
    routes = Routes()
    first = routes.find(httpx.URL("https://a.test/x"))
    assert first is routes.find(httpx.URL("https://a.test:443/y?z"))
    assert first is not routes.find(httpx.URL("http://a.test/x"))
    assert first is not routes.find(httpx.URL("https://a.test:8443/x"))
    assert (first.place, first.tls, first.proxy) == (Place("a.test", 443), True, None)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_https_goes_through_a_tunnel(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, f"http://user:{SECRET}@proxy.test:3128")
    route = Routes().find(httpx.URL("https://a.test"))
    assert route.proxy is not None
    assert route.proxy.place == Place("proxy.test", 3128)
    assert route.proxy.authorization == b"Proxy-Authorization: Basic %b\r\n" % b64encode(b"user:s@cret")
    assert (route.prefix, route.lines) == (b"", b"")
    assert b64encode(b"user:s@cret").decode() not in repr(route)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_http_names_its_origin(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://proxy.test")
    route = Routes().find(httpx.URL("http://a.test:8080/x"))
    assert route.proxy is not None
    assert route.proxy.place == Place("proxy.test", 80)
    assert (route.prefix, route.lines) == (b"http://a.test:8080", b"")


def test_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = Routes()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    assert routes.find(httpx.URL("https://a.test")).proxy is None


@pytest.mark.parametrize("bypass", ["*", "a.test", ".test", "other.test, a.test", "a.test:8443"])
def test_no_proxy(monkeypatch: pytest.MonkeyPatch, bypass: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    assert Routes().find(httpx.URL("https://a.test:8443")).proxy is not None
    monkeypatch.setenv("NO_PROXY", bypass)
    assert Routes().find(httpx.URL("https://a.test:8443")).proxy is None
    if bypass != "*":
        assert Routes().find(httpx.URL("https://b.example")).proxy is not None


@pytest.mark.parametrize("url", ["ftp://a.test", "https:///x", "/x"])
def test_address_that_is_none(url: str) -> None:
    with pytest.raises(httpx.UnsupportedProtocol):
        _find(url)


@pytest.mark.parametrize(
    "address", ["socks5://u:pw1@p.test:1", "https://u:pw1@p.test", "http://u:pw1@", "http://u:pw1@p:x"]
)
def test_proxy_that_is_not_supported_is_named_without_its_login(address: str) -> None:
    with pytest.raises(httpx.UnsupportedProtocol) as caught:
        read_proxy(address)
    assert "pw1" not in str(caught.value)


def test_proxy_without_a_scheme_is_a_http_proxy() -> None:
    assert read_proxy("proxy.test:3128").place == Place("proxy.test", 3128)


def test_unsupported_proxy_matters_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://p.test:1")
    monkeypatch.setenv("NO_PROXY", "a.test")
    assert Routes().find(httpx.URL("https://a.test")).proxy is None
    with pytest.raises(httpx.UnsupportedProtocol, match="socks5"):
        _find("https://b.test")


def test_place_as_text() -> None:
    assert str(Place("a.test", 1)) == "a.test:1"
    assert str(Place("::1", 1)) == "[::1]:1"
