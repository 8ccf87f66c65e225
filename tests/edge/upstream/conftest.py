"""Every test of the way out runs on both event loops, and without the proxies of the machine it runs on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from app.edge.upstream import Upstream
from app.edge.upstream.trust import trusted
from tests.edge.upstream.peers import Authority


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="session")
def trust() -> ssl.SSLContext:
    return trusted()  # takes a tenth of a second, so once for all


@pytest.fixture
async def upstream(trust: ssl.SSLContext) -> AsyncIterator[Upstream]:
    client = Upstream(ssl_context=trust)
    yield client
    await client.aclose()
    assert client.open_connections == 0


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()
