"""Side-by-side bench of the proxy on loopback: `python bench/run.py` (README.md says how to read what it prints).

Everything runs at once: the upstream, nginx, compactd in three configurations and any `--target`. A round measures each
scenario on each target, in an order that rotates from round to round, so that a noisy machine is noisy to all alike.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import corpus
from processes import BenchError, build, cpu_pair, cpu_seconds, memory_mb, pin, reset_peak, start, tree
from scenarios import (
    COLD,
    COMPACTD,
    PATHS,
    SCENARIOS,
    Bar,
    ColdSample,
    Results,
    Sample,
    Scenario,
    cpu_ratio,
    judge,
    lag_us,
    median,
    paired,
    rate,
)
from targets import CONFIGS, Launcher, Target

WARM_UP = 0.5  # seconds before each measurement; streams start staggered over it
COLD_SMALL_INTERVAL_US = 2_000


class Bench:
    """One run: the programs, the targets and what was measured."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self.options = options
        self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        upstream_program, self._load_program = build()
        pair = cpu_pair()
        self._load_cpu = pair[1] if pair else None
        upstream = start(stack, [str(upstream_program)], self._load_cpu, subprocess.PIPE)
        assert upstream.stdout is not None
        self._launcher = Launcher(stack, self.directory, int(upstream.stdout.readline()), pair[0] if pair else None)
        print(f"CPU {pair[0]}: proxies; CPU {pair[1]}: load and upstream" if pair else "one CPU: nothing is pinned")
        self.targets: dict[str, Target] = {"direct": self._launcher.direct()}
        self.compactd: dict[str, Target] = {}
        self.results: Results = {}
        self.cold: dict[str, list[ColdSample]] = {}
        self.outcomes: dict[str, str] = {}

    def launch(self) -> None:
        try:
            self.targets["nginx"] = self._launcher.nginx()
        except BenchError as problem:
            print(f"nginx: {problem}")
        try:
            for kind in CONFIGS:
                self.compactd[kind] = self._launcher.compactd(kind, self.options.compactd, self.options.store)
        except BenchError as problem:
            print(f"compactd: {problem}")
            self.compactd = {}
        for name, command in self.options.target:
            self.targets[name] = self._launcher.command(name, command)

    def targets_of(self, config: str) -> dict[str, Target]:
        return self.targets | ({COMPACTD: self.compactd[config]} if self.compactd else {})

    def body(self, scenario: Scenario) -> Path:
        return self._body_file(scenario.shape, scenario.size, stream=scenario.stream)

    def _body_file(self, shape: str, size: str, *, stream: bool = False, cold: bool = False) -> Path:
        path = self.directory / f"{shape}-{size}-{stream}-{cold}.json"
        if not path.exists():
            path.write_bytes(corpus.body(shape, size, stream=stream, cold=cold))
        return path

    def _load(self, target: Target, path: str, body: Path, *options: object) -> subprocess.Popen[str]:
        command = [str(self._load_program), *map(str, options), "-S", str(target.port), path, str(body)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=pin(self._load_cpu))

    def measure(self, scenario: Scenario, target: Target, seconds: float, warm_up: float = WARM_UP) -> Sample:
        reset_peak(tree(target.pid) if target.pid else [])
        wanted = ("-c", scenario.connections, "-a", scenario.answer, "-s", seconds, "-w", warm_up)
        with self._load(target, PATHS[scenario.shape], self.body(scenario), *wanted) as load:
            assert load.stdout is not None
            assert load.stderr is not None
            clock = []
            for word in ("begin", "end"):
                if load.stderr.readline().strip() != word:
                    raise BenchError(f"load failed on {target.name}: {load.stderr.read()}")
                clock.append(cpu_seconds(tree(target.pid)) if target.pid else 0.0)
            said = json.loads(load.stdout.read())
        peak = memory_mb(tree(target.pid), "VmHWM") if target.pid else 0.0
        return Sample(said, (clock[1] - clock[0]) * 1e6 / max(1, said["requests"]), peak)

    def _longest_small(self, target: Target) -> float:
        wanted = ("-c", 1, "-i", COLD_SMALL_INTERVAL_US, "-s", self.options.seconds)
        with self._load(target, PATHS["chat"], self._body_file("chat", "2k"), *wanted) as load:
            return float(json.loads(load.communicate()[0])["latency_us"]["max"]) / 1000

    def measure_cold(self, target: Target) -> ColdSample:
        """Small requests alone, then beside large ones in which every text is new."""
        alone = self._longest_small(target)
        large_body = self._body_file("chat", "1m", cold=True)
        with self._load(target, PATHS["chat"], large_body, "-c", 1, "-w", 0, "-s", self.options.seconds + 0.5) as large:
            beside = self._longest_small(target)
            return ColdSample(alone, beside, json.loads(large.communicate()[0])["requests"])

    def ask(self, scenario: Scenario, target: Target) -> str:
        """One request, waited for to its end; returns what compactd says that it did with it (else nothing)."""
        fresh = f"salt-{random.getrandbits(64):016x}".encode()
        body = self.body(scenario).read_bytes().replace(corpus.SALT.encode(), fresh)
        connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=30)
        headers = {
            "authorization": "Bearer bench",
            "content-type": "application/json",
            "x-bench-answer": scenario.answer,
        }
        try:
            connection.request("POST", PATHS[scenario.shape], body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.headers.get("x-compactd-outcome", "")
        except (OSError, http.client.HTTPException):
            return ""
        finally:
            connection.close()

    def run(self, chosen: list[Scenario], cold: bool) -> None:
        for scenario in chosen:  # first requests pay for imports, connections, cold counts and the compaction
            for name, target in self.targets_of(scenario.config).items():
                self.ask(scenario, target)
                self.measure(scenario, target, 0.3, 0.2)
                if name == COMPACTD:
                    self.outcomes[scenario.name] = self.ask(scenario, target)
        for turn in range(self.options.rounds):
            print(f"round {turn + 1} of {self.options.rounds}", file=sys.stderr, flush=True)
            for scenario in chosen:
                for name, target in _rotated(self.targets_of(scenario.config), turn):
                    sample = self.measure(scenario, target, self.options.seconds)
                    self.results.setdefault(scenario.name, {}).setdefault(name, []).append(sample)
            for name, target in _rotated(self.targets_of("counted"), turn) if cold else ():
                self.cold.setdefault(name, []).append(self.measure_cold(target))


def _rotated(targets: dict[str, Target], turn: int) -> list[tuple[str, Target]]:
    pairs = list(targets.items())
    cut = turn % len(pairs)
    return pairs[cut:] + pairs[:cut]


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def print_scenario(scenario: Scenario, targets: dict[str, list[Sample]], outcome: str) -> None:
    said = f", compactd: {scenario.config}, outcome {outcome or 'unknown'}" if COMPACTD in targets else ""
    print(f"\n== {scenario.name} ({scenario.shape}, {scenario.connections} connections, {scenario.answer}{said})")
    heads = ["target", "req/s", "x direct", "p50 ms", "p99 ms", "first ms", "cpu us", "x nginx", "peak MB", "errors"]
    heads += ["lag50 us", "lag99 us", "gap99 ms", "lost"] if scenario.stream else []
    print(f"{heads[0]:20}" + "".join(f"{head:>10}" for head in heads[1:]))
    for name, rounds in targets.items():
        cells = [f"{median(rounds, rate):.0f}"]
        cells.append(_ratio(paired(rounds, targets["direct"], lambda a, b: rate(a) / rate(b) if rate(b) else 0.0)))
        for kind, quantile in (("latency_us", "p50"), ("latency_us", "p99"), ("first_byte_us", "p50")):
            cells.append(f"{median(rounds, lambda s, k=kind, q=quantile: s.load[k][q] / 1000):.2f}")  # type: ignore[misc]
        cells.append(f"{median(rounds, lambda s: s.cpu_us):.1f}" if name != "direct" else "-")
        cells.append(_ratio(cpu_ratio(rounds, targets.get("nginx", [])) if name != "direct" else None))
        cells.append(f"{max(sample.peak_mb for sample in rounds):.0f}" if name != "direct" else "-")
        cells.append(str(sum(sample.load["errors"] for sample in rounds)))
        if scenario.stream:
            cells += [f"{median(rounds, lag_us):.0f}", f"{median(rounds, lambda s: s.load['lag_us']['p99']):.0f}"]
            cells += [f"{median(rounds, lambda s: s.load['gap_us']['p99'] / 1000):.2f}"]
            cells += [str(sum(sample.load["lost_events"] for sample in rounds))]
        print(f"{name:20}" + "".join(f"{cell:>10}" for cell in cells))


def print_cold(cold: dict[str, list[ColdSample]]) -> None:
    print(
        "\n== cold (small requests every 2 ms beside 1 MB bodies never seen; slowest small one, ms; compactd: counted)"
    )
    print(f"{'target':20}{'alone':>10}{'beside':>10}{'pause':>10}{'1 MB req':>10}")
    for name, rounds in cold.items():
        alone, beside = (statistics.median(getattr(s, which) for s in rounds) for which in ("alone_ms", "beside_ms"))
        pause = statistics.median(sample.beside_ms - sample.alone_ms for sample in rounds)
        print(f"{name:20}{alone:10.1f}{beside:10.1f}{pause:10.1f}{sum(s.large_requests for s in rounds):10d}")


def print_start(targets: list[Target]) -> None:
    print(f"\n{'target':20}{'start s':>10}{'idle MB':>10}")
    for target in targets:
        print(f"{target.name:20}{target.start_seconds:10.2f}{target.idle_mb:10.0f}")


def print_bars(bars: list[Bar]) -> None:
    print(f"\n{'bar':52}{'limit':>12}{'measured':>12}{'nginx':>10}")
    for bar in bars:
        verdict = "ok" if bar.met else "MISSED" if bar.measured else "not measured"
        print(f"{bar.name:52}{bar.limit:>12}{bar.measured:>12}{bar.nginx:>10}  {verdict}")


def _named_command(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not (name and equals and command):
        raise argparse.ArgumentTypeError("wanted: name=command")
    return name, command


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Bench compactd beside nginx and the bare upstream.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="measured per target, scenario and round")
    parser.add_argument("--only", default="", help="scenarios to run: parts of their names, separated by commas")
    parser.add_argument(
        "--target",
        type=_named_command,
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a further proxy; {port}, {upstream} and {dir} are filled in",
    )
    parser.add_argument("--compactd", metavar="PATH", help="the compactd to measure")
    parser.add_argument("--store", default="memory://", help="compactd's store URL")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything that was measured")
    parser.add_argument("--assert", dest="strict", action="store_true", help="exit with 1 when a bar is not met")
    return parser.parse_args(arguments)


def choose(only: str) -> tuple[list[Scenario], bool]:
    parts = [part.strip().lower() for part in only.split(",") if part.strip()]
    chosen = [s for s in SCENARIOS if not parts or any(part in s.name.lower() for part in parts)]
    return chosen, not parts or any(part in COLD for part in parts)


def report(bench: Bench, chosen: list[Scenario], cold: bool) -> list[Bar]:
    for scenario in chosen:
        print_scenario(scenario, bench.results[scenario.name], bench.outcomes.get(scenario.name, ""))
    if cold:
        print_cold(bench.cold)
    print_start([target for target in (*bench.targets.values(), *bench.compactd.values()) if target.pid])
    idle = max((target.idle_mb for target in bench.compactd.values()), default=None)
    bars = judge(chosen, bench.results, bench.cold if cold else None, bench.outcomes, idle)
    print_bars(bars)
    return bars


def as_json(bench: Bench, bars: list[Bar]) -> dict[str, Any]:
    results = {
        s: {t: [asdict(r) for r in rounds] for t, rounds in targets.items()} for s, targets in bench.results.items()
    }
    cold = {name: [asdict(sample) for sample in rounds] for name, rounds in bench.cold.items()}
    targets = [asdict(target) for target in (*bench.targets.values(), *bench.compactd.values())]
    return {"scenarios": results, "cold": cold, "targets": targets, "bars": [asdict(bar) for bar in bars]}


def main() -> int:
    options = read_options()
    chosen, cold = choose(options.only)
    try:
        with ExitStack() as stack:
            bench = Bench(options, stack)
            bench.launch()
            bench.run(chosen, cold)
    except BenchError as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 1
    bars = report(bench, chosen, cold)
    if options.json:
        options.json.write_text(json.dumps(as_json(bench, bars), indent=1))
    return 1 if options.strict and not all(bar.met for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
