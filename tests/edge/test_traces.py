"""Without traces: nothing of OpenTelemetry is loaded, and a client's own trace headers go through as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.edge.traces import NO_TRACES, open_traces
from app.own import loading
from app.settings import Settings, Traces
from tests.edge.talks import Talk
from tests.edge.wire import compactd, configured
from tests.strict.server import StrictProvider

WITHOUT = """
import sys
from app.main import App
from app.settings import Settings
App(Settings(store={"url": "memory://"}))
ours = ("app.edge.otel", "opentelemetry.sdk.trace", "opentelemetry.exporter")  # FastAPI and redis load other parts of it
print([name for name in sys.modules if name.startswith(ours)])
"""


def test_off_nothing_is_loaded_for_traces() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert ran.stdout.strip() == "[]"


async def test_off_all_is_empty() -> None:
    traces, headers = open_traces(Traces()), [(b"traceparent", b"x")]
    assert traces is NO_TRACES
    with traces.span("count", tokens=1) as span, traces.call(headers, "gemini", "m", "http://x"):
        span.tell(more=2)
    await traces.close()
    assert headers == [(b"traceparent", b"x")]


@pytest.mark.parametrize("value", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Of Another Kind"])
async def test_off_a_clients_own_headers_are_left_alone(value: str) -> None:
    provider = StrictProvider()
    async with provider.serve() as url, compactd(configured(url)) as proxy:
        talk = Talk("openai-chat").ask("Hi.")
        await proxy.ask(talk.request(f"traceparent: {value}", "tracestate: a=1", "baggage: user=x"))
        await proxy.ask(talk.request())
    first, second = ({name: text for name, text in seen.headers} for seen in provider.requests)
    assert (first["traceparent"], first["tracestate"], first["baggage"]) == (value, "a=1", "user=x")
    assert first.keys() - second.keys() == {"traceparent", "tracestate", "baggage"}


def test_traces_without_their_packages_are_a_fault_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(traces={"enabled": True})

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(loading, "find_spec", missing)
    (fault,) = loading.missing(settings)
    assert fault.loc == ("traces", "enabled")
    assert "pip install 'compactd[otel]'" in fault.text
    assert not list(loading.missing(Settings()))
