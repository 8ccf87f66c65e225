"""Stopping, reloading, workers: real processes and real signals."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.edge import server
from tests.edge.processes import COMMAND, Process, process
from tests.edge.talks import Talk
from tests.edge.upstream.peers import Peer
from tests.edge.upstream.peers import serve as scripted
from tests.edge.wire import Client, request, taken
from tests.ports import free_port
from tests.strict.server import StrictProvider

FORMATS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
LOW = {"name": "low", "strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1}
MESSAGES = (
    b'{"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "Hi."}]}'
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Stream:
    """A provider of event streams that sends the next event when it is told to; b"" ends the stream."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes] = asyncio.Queue()

    async def __call__(self, peer: Peer) -> None:
        if (await taken(peer)).line.startswith("POST"):
            await peer.send(HEAD)
            while event := await self.events.get():
                await peer.send(b"%x\r\n%b\r\n" % (len(event), event))
            await peer.send(b"0\r\n\r\n")
        else:
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")


def upstreams(url: str) -> dict[str, Any]:
    return {"provider": {"base_url": url, "formats": FORMATS}}


async def test_reload_and_drain_leave_a_running_stream_alone(tmp_path: Path) -> None:
    stream = Stream()
    async with scripted(stream, patience=60) as provider:
        sections = {
            "upstreams": upstreams(provider.url),
            "store": {"url": "memory://"},
            "limits": {"drain_seconds": 30},
        }
        async with process(tmp_path, **sections) as compactd:
            client = await compactd.connect()
            await client.send(request("POST", "/v1/messages", body=MESSAGES))
            assert (await client.head()).status == 200

            async def next_event(name: bytes) -> None:
                stream.events.put_nowait(name)
                assert await client.piece() == name

            await next_event(b"data: before\n\n")

            slower = {"url": "memory://", "timeout": 0.5}
            compactd.configure(**{**sections, "store": slower}, policies=[{"name": "second"}])
            compactd.signal(signal.SIGHUP)
            assert (await compactd.logged("reloaded"))["waits_for_restart"] == ["store"]
            chosen = await compactd.http.post(
                "/v1/chat/completions", json={"messages": []}, headers={"x-compactd-policy": "first"}
            )
            assert chosen.json()["error"]["code"] == "unknown_policy"
            config = (await compactd.http.get("/compactd/api/config")).json()
            assert [policy["name"] for policy in config["policies"]] == ["second"]
            await next_event(b"data: after a reload\n\n")

            compactd.file.write_text(
                '{"listne": {}, "limits": {"drain_seconds": "soon"}, "store": {"url": "nosuch://"}}'
            )
            compactd.signal(signal.SIGHUP)
            refused = await compactd.logged("reload_refused")
            assert len(refused["faults"]) == 3
            assert all(
                word in " ".join(refused["faults"]) for word in ("listne", "listen", "drain_seconds", "store.url")
            )
            assert (await compactd.http.get("/compactd/api/config")).json() == config
            await next_event(b"data: after a bad one\n\n")

            kept = await compactd.connect()
            compactd.signal(signal.SIGTERM)
            async with asyncio.timeout(5):
                while (ready := await compactd.http.get("/readyz")).status_code != 503:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert (ready.json(), ready.headers["connection"]) == ({"status": "draining"}, "close")
            assert await compactd.metric("draining") == 1
            assert 1 <= await compactd.metric("tasks") < 20
            assert (await compactd.http.get("/livez")).status_code == 200
            await kept.send(request("GET", "/v1/models"))  # whoever sent it could not know
            answer = await kept.answer()
            assert (answer.status, answer["connection"], answer.body) == (200, "close", b"ok")
            assert await kept.rest() == b""
            await next_event(b"data: while it drains\n\n")
            stream.events.put_nowait(b"")
            assert await client.piece() == b""
            assert await compactd.ended() == 0
            assert "Traceback" not in compactd.log.read_text()


@pytest.mark.parametrize("workers", [1, 2])
async def test_what_comes_late_in_a_drain_is_refused(tmp_path: Path, workers: int) -> None:
    """Where a connection is open by an answer; where none is, by none, so that a balancer goes to another process."""
    stream = Stream()
    async with scripted(stream, patience=60) as provider:
        sections = {
            "upstreams": upstreams(provider.url), "store": {"url": f"sqlite:///{tmp_path}/compactd.db"},
            "limits": {"drain_seconds": 4}, "listen": {"workers": workers},
        }  # fmt: skip
        async with process(tmp_path, **sections) as compactd:
            client, late = await compactd.connect(), await compactd.connect()
            await client.send(request("POST", "/v1/messages", body=MESSAGES))
            await client.head()
            compactd.signal(signal.SIGTERM)
            await asyncio.sleep(2.5)
            with pytest.raises(ConnectionRefusedError):
                await compactd.connect()
            await asyncio.sleep(1)
            if workers == 1:  # else it may be with the one that had nothing to finish, and is gone
                await late.send(request("POST", "/v1/messages", body=MESSAGES))
                answer = await late.answer()
                assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "draining")
                assert ("close" in answer["connection"], json.loads(answer.body)["type"]) == (True, "error")
            stream.events.put_nowait(b"")
            assert await client.piece() == b""
            assert await compactd.ended() == 0


async def test_idle_connections_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    async with process(tmp_path, store={"url": "memory://"}, limits={"drain_seconds": 300}) as compactd:
        client = await compactd.connect()
        await client.send(request("GET", "/livez"))
        assert (await client.answer()).status == 200
        compactd.signal(signal.SIGTERM)
        began = time.monotonic()
        assert await client.rest() == b""
        assert await compactd.ended() == 0
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("again", [False, True], ids=["its time is over", "a second signal"])
async def test_who_is_cut_off_by_the_end_is_told_so(tmp_path: Path, again: bool) -> None:
    """In the shape of its format, and in the log: it had been a 500 in plain text, and looked like a crash."""
    asked = asyncio.Semaphore(0)

    async def script(peer: Peer) -> None:
        """Sends the head of a stream and no more; to the other one nothing at all."""
        if b"Hi." in (await taken(peer)).body:
            await peer.send(HEAD)
        asked.release()
        await asyncio.Event().wait()

    async with scripted(script, patience=60) as provider:
        sections = {
            "upstreams": upstreams(provider.url),
            "store": {"url": "memory://"},
            "limits": {"drain_seconds": 300 if again else 1},
        }
        async with process(tmp_path, **sections) as compactd:
            waits, streams = await compactd.connect(), await compactd.connect()
            await streams.send(request("POST", "/v1/messages", body=MESSAGES))
            await streams.head()
            await waits.send(request("POST", "/v1/messages", body=MESSAGES.replace(b"Hi.", b"Well?")))
            await asked.acquire()
            await asked.acquire()
            compactd.signal(signal.SIGTERM)
            begun = await compactd.logged("draining")
            assert begun["inflight"] == 2
            if again:
                await asyncio.sleep(server.SAME_SIGNAL)
                compactd.signal(signal.SIGTERM)
            answer = await waits.answer()
            assert answer["connection"] == "close"
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "draining")
            assert await streams.rest() == b""  # broken off, no clean end
            assert await compactd.ended() == 0
        lines = compactd.lines
    assert [line["requests"] for line in lines if line["event"] == "cut_off"] == [2]
    told = {(line["status"], line["error"], line["level"]) for line in lines if line["event"] == "request"}
    assert told == {(503, "draining", "warning"), (200, "draining", "warning")}
    assert lines[-1]["event"] == "stopped"
    assert not [line for line in lines if line["level"] == "error"]


async def test_drain_ends_when_its_time_is_over(tmp_path: Path) -> None:
    stream = Stream()
    async with scripted(stream, patience=60) as provider:
        sections = {
            "upstreams": upstreams(provider.url),
            "store": {"url": "memory://"},
            "limits": {"drain_seconds": 0.5},
        }
        async with process(tmp_path, **sections) as compactd:
            client = await compactd.connect()
            await client.send(request("POST", "/v1/messages", body=MESSAGES))
            await client.head()
            compactd.signal(signal.SIGTERM)
            began = time.monotonic()
            assert await client.rest() == b""  # broken off, no clean end
            assert await compactd.ended() == 0
            assert 0.4 < time.monotonic() - began < 10


async def test_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    stream = Stream()
    async with scripted(stream, patience=60) as provider:
        sections = {
            "upstreams": upstreams(provider.url),
            "store": {"url": "memory://"},
            "limits": {"drain_seconds": 300},
        }
        async with process(tmp_path, **sections) as compactd:
            client = await compactd.connect()
            await client.send(request("POST", "/v1/messages", body=MESSAGES))
            await client.head()
            compactd.signal(signal.SIGINT)
            async with asyncio.timeout(5):
                while (await compactd.http.get("/readyz")).status_code != 503:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(server.SAME_SIGNAL)
            compactd.signal(signal.SIGINT)
            assert await client.rest() == b""
            assert await compactd.ended() == 0


async def test_a_signal_to_all_processes_is_one_signal(tmp_path: Path) -> None:
    """As systemd and a terminal send it: the workers get it from there and from their parent. It had cut their streams."""
    stream = Stream()
    async with scripted(stream, patience=60) as provider:
        sections = {
            "upstreams": upstreams(provider.url), "store": {"url": "memory://"}, "listen": {"workers": 2},
            "limits": {"drain_seconds": 30},
        }  # fmt: skip
        async with process(tmp_path, **sections) as compactd:
            workers = await _workers(compactd.running.pid, 2)
            await _answering(compactd.url, 2)
            client = await compactd.connect()
            await client.send(request("POST", "/v1/messages", body=MESSAGES))
            await client.head()
            for number in workers:
                os.kill(number, signal.SIGTERM)
            await asyncio.sleep(server.SAME_SIGNAL / 5)  # so that it is not still pending when it is passed on
            compactd.signal(signal.SIGTERM)
            await asyncio.sleep(2)  # it would have been broken off after one
            for event in (b"data: {}\n\n", b""):
                stream.events.put_nowait(event)
                assert await client.piece() == event
            assert await compactd.ended() == 0


async def test_log_options_follow_a_reload(tmp_path: Path) -> None:
    sections = {"upstreams": upstreams("http://127.0.0.1:9"), "store": {"url": "memory://"}}
    async with process(tmp_path, **sections, log={"format": "json", "level": "error"}) as compactd:

        async def reload(**options: Any) -> None:
            compactd.configure(**sections, log=options)
            compactd.signal(signal.SIGHUP)
            async with asyncio.timeout(10):
                while (await compactd.http.get("/compactd/api/config")).json()["log"] != options:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        async def unreachable() -> None:
            assert (await compactd.http.post("/v1/messages", content=MESSAGES)).status_code == 502

        await unreachable()
        assert compactd.lines == []
        await reload(format="json", level="info", sample=1.0)
        await unreachable()
        assert (await compactd.logged("request"))["error"] == "upstream_unreachable"
        await reload(format="console", level="info", sample=1.0)
        known = len(compactd.log.read_text().splitlines())
        await unreachable()
        async with asyncio.timeout(10):
            while len(said := compactd.log.read_text().splitlines()[known:]) < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "upstream_unreachable" in said[-1]
        assert not said[-1].startswith("{")


async def test_a_worker_that_dies_takes_its_requests_in_flight_with_it_and_leaves_its_counts(tmp_path: Path) -> None:
    stream = Stream()
    async with scripted(stream, patience=60) as provider:
        sections = {"upstreams": upstreams(provider.url), "store": {"url": "memory://"}, "listen": {"workers": 2}}
        async with process(tmp_path, **sections) as compactd:
            workers = await _workers(compactd.running.pid, 2)
            await _answering(compactd.url, 2)
            counted = await compactd.metric("requests_total")
            clients: list[tuple[Client, str]] = []
            while len({worker for _, worker in clients}) < 2:  # until both have some
                client = await compactd.connect()
                await client.send(request("POST", "/v1/messages", body=MESSAGES))
                clients.append((client, (await client.head())["x-compactd-request-id"][:8]))
            assert await compactd.metric("inflight_requests") == len(clients)
            assert await compactd.metric("draining") == 0
            assert await compactd.metric("build_info") == 1

            os.kill(workers[0], signal.SIGKILL)
            await compactd.logged("worker_died")
            await _workers(compactd.running.pid, 2)
            gone = [client for client, _ in clients if await _broken(client)]
            assert 0 < len(gone) < len(clients)
            assert await compactd.metric("inflight_requests") == len(clients) - len(gone)
            assert await compactd.metric("requests_total") == counted


async def test_workers_end_when_nobody_looks_after_them_any_more(tmp_path: Path) -> None:
    """The first process is killed: its workers must not hold the port for ever."""
    sections = {"store": {"url": "memory://"}, "listen": {"workers": 2}, "limits": {"drain_seconds": 4}}
    async with process(tmp_path, **sections) as compactd:
        workers = await _workers(compactd.running.pid, 2)
        await _answering(compactd.url, 2)
        compactd.running.kill()
        await compactd.logged("parent_died", times=2)
        async with asyncio.timeout(20):
            while any(map(_alive, workers)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def _broken(client: Client) -> bool:
    try:
        async with asyncio.timeout(0.2):
            return await client.reader.read() == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


async def test_two_workers_are_one_compactd(tmp_path: Path) -> None:
    """Checkpoints, sessions and metrics are shared; a worker that dies is replaced; both reload, both stop."""
    provider = StrictProvider()
    async with provider.serve() as url:
        store = {"url": f"sqlite:///{tmp_path}/compactd.db", "timeout": 5}
        sections = {"upstreams": upstreams(url), "store": store, "policies": [LOW], "listen": {"workers": 2}}
        async with process(tmp_path, **sections) as compactd:
            workers = await _workers(compactd.running.pid, 2)

            talk = Talk("anthropic-messages").ask("Read.").rounds(8)
            outcomes = []
            by_worker: dict[str, list[str]] = {}
            async with asyncio.timeout(40):  # one of them may be ready long before the other
                while len(outcomes) < 24 or len(by_worker) < 2:
                    answer = await _once(compactd.url, talk)
                    outcomes.append(answer.headers["x-compactd-outcome"])
                    by_worker.setdefault(answer.headers["x-compactd-request-id"][:8], []).append(outcomes[-1])
            assert outcomes == ["compacted"] + ["replayed"] * (len(outcomes) - 1)
            assert len({seen.raw for seen in provider.requests}) == 1

            assert await compactd.metric("requests_total") == len(outcomes)
            assert await compactd.metric("compactions_total") == 1
            assert await compactd.metric("inflight_requests") == 0

            compactd.file.write_text("no: configuration")  # a new worker does not depend on what the file holds by now
            compactd.signal(signal.SIGHUP)
            await compactd.logged("reload_refused", times=2)
            os.kill(workers[0], signal.SIGKILL)
            assert (await compactd.logged("worker_died"))["exit_code"] == -9
            replaced = await _workers(compactd.running.pid, 2)
            assert workers[0] not in replaced
            for _ in range(8):
                assert (await _once(compactd.url, talk)).headers["x-compactd-outcome"] == "replayed"
            assert await compactd.metric("requests_total") == len(outcomes) + 8

            await _answering(compactd.url, 2)
            compactd.configure(**{**sections, "policies": [{**LOW, "name": "changed"}]})
            compactd.signal(signal.SIGHUP)
            await compactd.logged("reloaded", times=2)

            compactd.signal(signal.SIGTERM)
            assert await compactd.ended() == 0
            assert not [pid for pid in replaced if _alive(pid)]
            assert "Traceback" not in compactd.log.read_text()


async def test_workers_that_are_stopped_while_they_start_are_gone(tmp_path: Path) -> None:
    made = Process(tmp_path, free_port())
    made.configure(store={"url": "memory://"}, listen={"workers": 3})
    await made.start()
    try:
        async with asyncio.timeout(40):
            while not (begun := _children(made.running.pid)):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        made.signal(signal.SIGTERM)
        assert await made.ended() == 0
    finally:
        await made.http.aclose()
        if made.running.returncode is None:
            made.running.kill()
    assert not [pid for pid in begun if _alive(pid)]
    assert "Traceback" not in made.log.read_text()


async def _once(url: str, talk: Talk) -> httpx.Response:
    """On a connection of its own, so that either worker may get it."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
        answer = await http.post(f"{url}/v1/messages", json=talk.body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer


async def _answering(url: str, count: int) -> None:
    """Wait until so many workers answer."""
    seen: set[str] = set()
    async with asyncio.timeout(40):
        while len(seen) < count:
            async with httpx.AsyncClient(trust_env=False) as http:
                seen.add((await http.get(f"{url}/v1/models")).headers["x-compactd-request-id"][:8])


async def _workers(parent: int, count: int) -> list[int]:
    """Process ids of the workers; Python's resource tracker is a child, too."""
    async with asyncio.timeout(40):
        while True:
            found = _children(parent)
            if len(found) == count:
                return found
            await asyncio.sleep(0.05)


def _children(parent: int) -> list[int]:
    pids = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in pids if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and not re.search(
        r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.M
    )


def test_workers_that_can_not_start_are_given_up(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif '--multiprocessing-fork' in sys.orig_argv:\n    os._exit(7)\n"
    )
    file = tmp_path / "compactd.yaml"
    sections = {"store": {"url": "memory://"}, "log": {"format": "json"}}
    file.write_text(json.dumps({"listen": {"port": free_port(), "workers": 2}, **sections}))
    command = "import app.edge.server as server; server.MOST_FAILURES = 2; from app.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", command, "serve", "--config", str(file)], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
    )  # fmt: skip
    assert ran.returncode == 1
    first, *said = [json.loads(line) for line in ran.stderr.splitlines()]
    assert (first["event"], first["workers"], first["store"]) == ("starting", 2, "memory")
    assert [line["event"] for line in said] == [*["worker_died"] * 4, "workers_do_not_start"]
    assert [line["exit_code"] for line in said[:4]] == [7] * 4


def test_a_worker_that_keeps_dying_is_tried_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        pid, exitcode, sentinel = 999_999, 3, 0

        def is_alive(self) -> bool:
            return False

    clock = 0.0
    monkeypatch.setattr(server.time, "monotonic", lambda: clock)
    monkeypatch.setattr(server, "mark_process_dead", lambda _: None)
    starts: list[float] = []

    def start() -> Dead:
        starts.append(clock)
        return Dead()

    worker = server._Worker(start)  # type: ignore[arg-type]
    while len(starts) < 9:
        worker.replace_if_dead()
        clock += 0.25
    waits = [after - before for before, after in itertools.pairwise(starts)]
    assert waits[:4] == pytest.approx([0.5, 1, 2, 4], abs=0.3)
    assert waits[-1] == pytest.approx(server.LONGEST_WAIT, abs=0.3)
    clock += server.SHORT_LIFE
    worker.replace_if_dead()
    assert worker.failures == 0


def test_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken_already:
        port = taken_already.getsockname()[1]
        for workers in (1, 2):
            file = tmp_path / "compactd.yaml"
            file.write_text(json.dumps({"listen": {"port": port, "workers": workers}, "store": {"url": "memory://"}}))
            ran = subprocess.run(
                [*COMMAND, "serve", "--config", str(file)], capture_output=True, text=True, timeout=60, check=False
            )
            assert ran.returncode != 0
            first, told = map(json.loads, ran.stderr.splitlines())
            assert (first["event"], first["address"]) == ("starting", f"127.0.0.1:{port}")
            assert told["level"] == "error"
            assert f"can't listen on 127.0.0.1:{port}: address already in use" in told["event"].lower()
            assert "--port" in told["event"]
            assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_is_greeted_to_an_address_that_is_not_ours(workers: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken_already:
        listen = {"port": taken_already.getsockname()[1], "workers": workers}
        file = tmp_path / "compactd.yaml"
        file.write_text(json.dumps({"listen": listen, "store": {"url": "memory://"}, "log": {"format": "console"}}))
        ran = subprocess.run(
            [*COMMAND, "serve", "--config", str(file)], capture_output=True, text=True, timeout=60, check=False
        )
    assert "can't listen" in ran.stderr
    assert "base_url" not in ran.stderr


def test_configuration_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "compactd.yaml"
    file.write_text(f"listen: {{port: {free_port()}, prot: 1}}\nstore: {{url: 7}}\n")
    ran = subprocess.run(
        [*COMMAND, "serve", "--config", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert "prot" in ran.stderr
    assert "store.url" in ran.stderr
    assert "Traceback" not in ran.stderr
