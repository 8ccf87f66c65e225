"""The two programs agree with each other and count what goes wrong; processes are measured whole; a run runs.

The programs are compiled and run for real; what a well-behaved upstream never does (losing an event, refusing) is played by a
socket server of a few lines.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bin")
    for name in ("upstream", "load"):
        flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["gcc", *flags, "-o", str(directory / name), str(BENCH / f"{name}.c")], check=True)
    return directory


@contextmanager
def running_upstream(programs: Path) -> Iterator[int]:
    with subprocess.Popen([programs / "upstream"], stdout=subprocess.PIPE) as upstream:
        assert upstream.stdout is not None
        try:
            yield int(upstream.stdout.readline())
        finally:
            upstream.terminate()


def load(programs: Path, port: int, body: Path, *options: str, path: str = "/v1/chat/completions") -> dict[str, Any]:
    command = [str(programs / "load"), "-w", "0.1", "-s", "0.6", *options, str(port), path, str(body)]
    run = subprocess.run(command, capture_output=True, check=True, text=True, timeout=20)
    assert run.stderr.split() == ["begin", "end"]
    result: dict[str, Any] = json.loads(run.stdout)
    return result


@pytest.fixture
def body(tmp_path: Path) -> Path:
    import corpus

    path = tmp_path / "body.json"
    path.write_bytes(corpus.body("chat", "2k"))
    return path


@needs_gcc
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_load_and_upstream_agree_on_json(programs: Path, body: Path, path: str) -> None:
    with running_upstream(programs) as port:
        result = load(programs, port, body, "-c", "4", "-S", path=path)
    assert result["requests"] > 0
    assert (result["errors"], result["statuses"]) == (0, {"200": result["requests"]})
    assert result["seconds"] >= 0.3
    latency = result["latency_us"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    assert 0 < result["first_byte_us"]["p50"] <= latency["p50"]
    assert result["body_bytes"] > 400 * (result["requests"] - 4)  # four may have begun to answer in the warm-up


@needs_gcc
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_load_and_upstream_agree_on_streams(programs: Path, body: Path, path: str) -> None:
    with running_upstream(programs) as port:
        result = load(programs, port, body, "-c", "8", "-a", "sse 5 2000 24", path=path)
    assert result["requests"] > 0
    assert (result["errors"], result["lost_events"]) == (0, 0)
    assert result["events"] >= 5 * (result["requests"] - 8)  # streams that began in the warm-up had some events there
    assert 0 < result["lag_us"]["p50"] <= result["lag_us"]["p99"] <= result["lag_us"]["max"]
    assert result["gap_us"]["max"] >= 2000
    assert result["latency_us"]["p50"] >= 5 * 2000


@needs_gcc
def test_pacing_holds_requests_back(programs: Path, body: Path) -> None:
    with running_upstream(programs) as port:
        result = load(programs, port, body, "-c", "1", "-i", "20000")
    assert 0 < result["requests"] <= result["seconds"] / 0.02 + 1


@needs_gcc
@pytest.mark.parametrize("chunked", [False, True])
def test_upstream_discards_any_body_and_keeps_the_connection(programs: Path, chunked: bool) -> None:
    large = b"x" * 3_000_000
    with running_upstream(programs) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        for size in (1000, 5):
            sent = (large[i : i + 70_001] for i in range(0, len(large), 70_001)) if chunked else large
            headers = {"x-bench-answer": f"json {size}"}
            connection.request("POST", "/v1/chat/completions", sent, headers, encode_chunked=chunked)
            answer = json.loads(connection.getresponse().read())
            assert len(answer["choices"][0]["message"]["content"]) == size
            assert answer["usage"]["prompt_tokens"] == len(large) // 4
        connection.close()


@needs_gcc
@pytest.mark.parametrize(("path", "end"), [("/v1/chat/completions", "data: [DONE]"), ("/v1/messages", "message_stop")])
def test_upstream_streams_are_numbered_events(programs: Path, path: str, end: str) -> None:
    with running_upstream(programs) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", path, b"{}", {"x-bench-answer": "sse 4 0 24"})
        answer = connection.getresponse()
        events = answer.read().decode().strip().split("\n\n")
        connection.close()
    marks = [event.split("@")[1].partition(":") for event in events if "@" in event]
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [int(number) for number, _, _ in marks] == [0, 1, 2, 3]
    assert sorted(marks, key=lambda mark: int(mark[2])) == marks
    assert end in events[-1]
    for event in events:
        data = event.partition("data: ")[2]
        assert data == "[DONE]" or json.loads(data)


@contextmanager
def scripted_server(answer: bytes, seen: list[bytes]) -> Iterator[int]:
    """Answers every request of one connection at a time with the same bytes, and keeps what it was sent."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(ConnectionResetError):  # the load generator leaves when its time is up
                received = b""
                while data := connection.recv(65536):
                    received += data
                    head, blank, rest = received.partition(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                    if blank and len(rest) >= length:
                        seen.append(rest[:length])
                        received = rest[length:]
                        connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


EVENT_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@needs_gcc
@pytest.mark.parametrize(
    ("parts", "lost"),
    [
        ((b"data: @0:1@\n\n", b"data: @1:1@\n\n", b"data: @2:1@\n\n"), 0),
        ((b"data: @", b"0:", b"1@\n\ndata: @1", b":1@\n\ndata: @2:1@\n\n"), 0),
        ((b"data: @0:1@\n\n", b"data: @2:1@\n\n"), 2),
        ((b"data: @1:1@\n\n", b"data: @0:1@\n\n", b"data: @2:1@\n\n"), 2),
        ((), 3),
    ],
    ids=["whole", "split", "one missing", "out of order", "empty"],
)
def test_load_counts_lost_events(programs: Path, body: Path, parts: tuple[bytes, ...], lost: int) -> None:
    with scripted_server(EVENT_STREAM + chunked(*parts), []) as port:
        result = load(programs, port, body, "-c", "1", "-a", "sse 3 0 0", "-i", "5000")
    assert result["errors"] == 0
    assert result["requests"] > 0
    assert result["lost_events"] == lost * result["requests"]


@needs_gcc
def test_load_counts_refusals_and_broken_streams_as_errors(programs: Path, body: Path) -> None:
    refusal = b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno"
    with scripted_server(refusal, []) as port:
        refused = load(programs, port, body, "-c", "1", "-i", "5000")
    assert refused["requests"] == 0
    assert refused["statuses"] == {"503": refused["errors"]}
    nobody = load(programs, port, body, "-c", "1")
    assert nobody["errors"] > 0
    assert nobody["requests"] == 0


@needs_gcc
def test_every_request_has_a_salt_of_its_own(programs: Path, body: Path) -> None:
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    salted: list[bytes] = []
    plain: list[bytes] = []
    for seen, options in ((salted, ("-S",)), (plain, ())):
        with scripted_server(ok, seen) as port:
            load(programs, port, body, "-c", "1", "-i", "2000", *options)
    assert len(set(salted)) == len(salted) > 1
    assert all(json.loads(one)["messages"][:-1] == json.loads(salted[0])["messages"][:-1] for one in salted)
    assert set(plain) == {body.read_bytes()}


def test_cpu_time_is_that_of_the_whole_tree() -> None:
    import processes

    burn = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\nopen(0).read()"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        pids = processes.tree(process.pid)
        assert len(pids) == 2
        assert processes.cpu_seconds(pids) - processes.cpu_seconds(pids[:1]) >= 0.1
        assert processes.memory_mb(pids, "VmRSS") > processes.memory_mb(pids[:1], "VmRSS") > 1
        process.communicate(b"")


def test_a_missing_compiler_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import processes

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(processes.BenchError, match="apt-get install gcc"):
        processes.build(tmp_path)


@needs_gcc
def test_an_own_target_is_started_in_front_of_the_upstream(programs: Path, tmp_path: Path) -> None:
    import processes
    import targets

    with running_upstream(programs) as port, ExitStack() as stack:
        launcher = targets.Launcher(stack, tmp_path, port, None)
        target = launcher.command("twin", f"{programs}/upstream {{port}}")
        assert target.pid is not None
        assert target.idle_mb > 0
        assert target.start_seconds > 0
        with pytest.raises(processes.BenchError, match="exit code"):
            launcher.command("broken", "false {upstream} {dir}")


@needs_gcc
def test_a_whole_run_prints_its_table_and_misses_what_it_could_not_measure(programs: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "run.py"), "--only", "64 streams", "--rounds", "1", "--seconds", "0.3"]
    command += ["--assert", "--compactd", str(tmp_path / "none"), "--target", f"twin={programs}/upstream {{port}}"]
    command += ["--json", str(tmp_path / "result.json")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1, run.stderr
    assert "compactd: not found" in run.stdout
    assert "not measured" in run.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    (twin,) = result["scenarios"]["64 streams"]["twin"]
    assert twin["load"]["errors"] == 0
    assert twin["load"]["requests"] > 0
    assert twin["cpu_us"] > 0
