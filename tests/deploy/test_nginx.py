"""deploy/nginx/compactd.conf with a real nginx: TLS, streams as they come, no administrators by accident, a restart that loses nothing.

This nginx asks nobody for their health: it goes on sending to a process that is stopping until that takes no connection any more.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from app.settings import Settings
from tests.deploy.load import KEYS, WORDS, Load, sections
from tests.edge.processes import process
from tests.edge.talks import Talk
from tests.edge.upstream.peers import Authority
from tests.ports import free_port
from tests.strict.answers import Reply
from tests.strict.server import StrictProvider

FILE = Path(__file__).parents[2] / "deploy/nginx/compactd.conf"
BINARY = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(BINARY is None, reason="no nginx")


@asynccontextmanager
async def nginx(folder: Path, ports: list[int]) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    """Runs on the file with these processes behind it: its address, and what to trust."""
    port = free_port()
    authority = Authority()
    pair = authority.pair()
    for name in ("compactd.pem", "compactd.key"):
        (folder / name).write_bytes(pair)
    site = FILE.read_text().replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("/etc/ssl/", f"{folder}/")
    for was, now in zip((8787, 8788), ports, strict=True):
        assert f"127.0.0.1:{was}" in site
        site = site.replace(f"127.0.0.1:{was}", f"127.0.0.1:{now}")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors warn;\n"
        f"events {{}}\nhttp {{ access_log off; {places}\n{site}\n}}\n"
    )
    assert BINARY
    running = await asyncio.create_subprocess_exec(
        BINARY, "-c", str(folder / "nginx.conf"), "-e", str(folder / "errors")
    )
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                except OSError:
                    assert running.returncode is None, (folder / "errors").read_text()
                    await asyncio.sleep(0.05)
        yield f"https://127.0.0.1:{port}", authority.client()
    finally:
        running.terminate()
        await running.wait()


async def test_a_restart_loses_nothing_and_streams_are_not_held_back(tmp_path: Path) -> None:
    provider = StrictProvider(answer=lambda form, body: Reply(text=WORDS), event_gap=0.05)  # noqa: ARG005
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    async with provider.serve() as url:
        configuration = sections(url, f"sqlite:///{tmp_path}/compactd.db", limits={"drain_seconds": 8})
        async with (
            process(tmp_path / "old", **configuration) as old,
            process(tmp_path / "new", **configuration) as new,
            nginx(tmp_path, [old.port, new.port]) as (address, trust),
        ):
            async with httpx.AsyncClient(base_url=address, verify=trust, trust_env=False, timeout=30) as http:
                here = {"host": "compactd.example"}  # it comes from this machine, but not as its own
                assert (await http.get("/compactd/api/config", headers=here)).status_code == 403
                body = {**Talk("anthropic-messages").ask("Hi.").body, "stream": True}
                clock = asyncio.get_running_loop().time
                async with http.stream("POST", "/v1/messages", json=body, headers=KEYS) as answer:
                    came = [clock() async for _ in answer.aiter_raw()]
                assert came[-1] - came[0] > 0.2
            load = Load(address, trust)
            load.begin()
            await asyncio.sleep(1)
            old.signal(signal.SIGTERM)
            assert await old.ended() == 0
            after = len(load.served_by)
            await asyncio.sleep(1)
            await load.end()
        assert load.faults == []
        assert len(set(load.served_by)) == 2
        assert len(set(load.served_by[after:])) == 1


def test_its_limits_are_the_default_ones() -> None:
    limits, text = Settings().limits, FILE.read_text()
    assert f"client_max_body_size {limits.max_body_bytes >> 20}m;" in text
    assert f"proxy_read_timeout {limits.read_timeout + 10:.0f}s;" in text
