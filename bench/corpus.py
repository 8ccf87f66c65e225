"""Deterministic agent histories, the request bodies of the bench: `python bench/corpus.py DIRECTORY [SIZE ...]`.

A history is drawn once, as a list of exchanges, and is then written in the shape of a wire format; the last answer is
padded so that the body has its size to the byte. Everything comes from `Random.random()`, whose sequence Python
promises to keep: every machine and every version writes the same bytes. Texts are made up here and of several kinds
(code, logs, JSON, CJK, base64), because what a tokeniser or a JSON reader costs depends on the kind. Where the load
generator shall put something never seen before, a body reads `salt-0000000000000000`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

SIZES = {"2k": 2_000, "100k": 100_000, "1m": 1_000_000, "4m": 4_000_000}  # bytes of the whole body
SALT = "salt-0000000000000000"
SHORTEST_RESULT, LONGEST_RESULT = 200, 20_000  # bytes of a tool result

T = TypeVar("T")


class Draw:
    """Choices that rest on `Random.random()` only."""

    def __init__(self, seed: str) -> None:
        self.share = random.Random(seed).random

    def below(self, limit: int) -> int:
        return int(self.share() * limit)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def digits(self, count: int, alphabet: str = "0123456789abcdef") -> str:
        return "".join(self.pick(alphabet) for _ in range(count))


NOUNS = ("account", "buffer", "cache", "client", "event", "index", "invoice", "ledger", "order", "parser", "queue")
VERBS = ("apply", "build", "check", "close", "collect", "load", "merge", "open", "parse", "reset", "resolve", "update")
STATEMENTS = (
    "    if {noun}.{other} is None or not {noun}.ready:",
    '        raise ValueError(f"{noun} {{{noun}.id}} has no {other} after {number} attempts")',
    "    {other} = self._{noun}s.get(key, DEFAULT_{other})  # {verb} it later, see issue {number}",
    "    for position, {noun} in enumerate({other}.items[:{number}]):",
    "        total += {noun}.amount * {number}.5 - {other}.offset",
    "    return [{verb}_{noun}(entry) for entry in {other} if entry.size > {number}]",
    '    with self._lock, open(path / "{noun}.{other}.json", encoding="utf-8") as source:',
    '        logger.debug("%s: %d {other}s to {verb}", {noun}.name, len({other}))',
)
PHRASES = (
    "設定ファイルを読み込み、既定値を上書きしました。",
    "テストは三件失敗しています。原因は日付の解析です。",
    "测试全部通过，没有发现新的错误。",
    "请检查缓存目录的权限，然后重新运行构建。",
    "다음 단계에서 로그를 다시 확인하겠습니다.",
    "データベース接続がタイムアウトしたため、再試行します。",
    "用户反馈：导出的表格缺少最后一列。",
)


def code(draw: Draw) -> Iterator[str]:
    while True:
        noun, other = draw.pick(NOUNS), draw.pick(NOUNS)
        yield f"def {draw.pick(VERBS)}_{noun}(self, {noun}: {noun.title()}, limit: int = {draw.below(500)}) -> bool:"
        yield f'    """{draw.pick(VERBS).title()} the {noun} before its {other} is gone."""'
        for _ in range(3 + draw.below(9)):
            yield draw.pick(STATEMENTS).format(noun=noun, other=other, verb=draw.pick(VERBS), number=draw.below(1000))
        yield ""


def log(draw: Draw) -> Iterator[str]:
    while True:
        level, noun = draw.pick(("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR")), draw.pick(NOUNS)
        time = f"{draw.below(24):02d}:{draw.below(60):02d}:{draw.below(60):02d}.{draw.below(1000):03d}"
        yield (
            f"2026-03-{1 + draw.below(28):02d}T{time}Z {level:5} [{noun}-{draw.below(32)}] {draw.pick(VERBS)} {noun} "
            f"trace={draw.digits(16)} path=/v2/{noun}s/{draw.below(10**6)} status={draw.pick((200, 204, 404, 503))} "
            f"took={draw.below(2000)}ms"
        )


def records(draw: Draw) -> Iterator[str]:
    while True:
        noun = draw.pick(NOUNS)
        record = {
            "id": draw.below(10**8),
            "kind": noun,
            "owner": {"name": f"{draw.pick(VERBS)}-{noun}", "url": f"https://example.com/{noun}s/{draw.digits(8)}"},
            "amount": draw.below(10**6) / 100,
            "tags": [draw.pick(NOUNS) for _ in range(draw.below(4))],
            "archived": draw.below(2) == 1,
        }
        yield json.dumps(record, indent=2 if draw.below(3) == 0 else None)


def cjk(draw: Draw) -> Iterator[str]:
    while True:
        yield f"{draw.below(1000)}. " + "".join(draw.pick(PHRASES) for _ in range(1 + draw.below(4)))


def base64(draw: Draw) -> Iterator[str]:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    while True:
        yield draw.digits(76, alphabet)


def prose(draw: Draw) -> Iterator[str]:
    while True:
        yield (
            f"The {draw.pick(NOUNS)} should {draw.pick(VERBS)} its {draw.pick(NOUNS)} before the {draw.pick(NOUNS)} "
            f"can {draw.pick(VERBS)} it, so I {draw.pick(VERBS)} that first and then look at line {draw.below(900)}."
        )


Kind = Callable[[Draw], Iterator[str]]
RESULTS: tuple[Kind, ...] = (code, code, code, log, log, records, records, cjk, base64)


def compact(value: object) -> bytes:
    """JSON as the SDKs send it: UTF-8, no spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def text(draw: Draw, kind: Kind, size: int) -> str:
    """Lines of a kind until they take about `size` bytes in JSON: at least one, and none is cut."""
    lines: list[str] = []
    for line in kind(draw):
        lines.append(line)
        size -= len(compact(line))  # the two quotes make up for the line break
        if size <= 0:
            break
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    tool: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user's question, a round of tool calls or the model's closing answer: what is empty is not there."""

    question: str = ""
    says: str = ""
    calls: tuple[Call, ...] = ()


def turn(draw: Draw, longest_result: int, salt: str) -> Iterator[Exchange]:
    """A question, two to thirteen rounds of one or two calls each, and the answer."""
    yield Exchange(question=salt + text(draw, prose, 300))
    for _ in range(2 + draw.below(12)):
        calls = []
        for _ in range(1 if draw.below(5) else 2):
            call_id = f"call_{draw.digits(24)}"
            tool = draw.pick(("read_file", "run_command", "search"))
            arguments = {"path": f"src/{draw.pick(NOUNS)}/{draw.pick(VERBS)}.py", "offset": draw.below(900)}
            size = int(SHORTEST_RESULT * (longest_result / SHORTEST_RESULT) ** draw.share())  # many short, a few long
            calls.append(Call(call_id, tool, arguments, salt + text(draw, draw.pick(RESULTS), size)))
        yield Exchange(says=salt + text(draw, prose, 200), calls=tuple(calls))
    yield Exchange(says=salt + text(draw, prose, 400))


def history(draw: Draw, room: int, salt: str, size_of: Callable[[Exchange], int]) -> list[Exchange]:
    """As many exchanges as go into `room` bytes, ending where the model's answer is due."""
    longest_result = max(SHORTEST_RESULT, min(LONGEST_RESULT, room // 20))
    exchanges: list[Exchange] = []
    while True:
        for exchange in turn(draw, longest_result, salt):
            room -= size_of(exchange)
            if room < 0:
                while not (exchanges[-1].question or exchanges[-1].calls):
                    exchanges.pop()
                return exchanges
            exchanges.append(exchange)


SYSTEM = "You are a careful coding agent. Follow the conventions of the repository and run the tests after each change."
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "offset": {"type": "integer"}}}
TOOLS = (
    ("read_file", "Read a file of the workspace. Long files are cut.", SCHEMA),
    ("run_command", "Run a command in the workspace. Long output is cut.", SCHEMA),
    ("search", "Search the workspace for a text.", SCHEMA),
)


def chat_messages(exchange: Exchange) -> list[Any]:
    if exchange.question:
        return [{"role": "user", "content": exchange.question}]
    if not exchange.calls:
        return [{"role": "assistant", "content": exchange.says}]
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": json.dumps(call.arguments)}}
        for call in exchange.calls
    ]
    results = [{"role": "tool", "tool_call_id": call.id, "content": call.result} for call in exchange.calls]
    return [{"role": "assistant", "content": exchange.says, "tool_calls": calls}, *results]


def chat(messages: list[Any], stream: bool, tools: bool) -> dict[str, Any]:
    request: dict[str, Any] = {"model": "gpt-5.1", "messages": [{"role": "system", "content": SYSTEM}, *messages]}
    if tools:
        functions = [{"name": name, "description": does, "parameters": schema} for name, does, schema in TOOLS]
        request["tools"] = [{"type": "function", "function": function} for function in functions]
    return request | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {})


def anthropic_messages(exchange: Exchange) -> list[Any]:
    if exchange.question:
        return [{"role": "user", "content": [{"type": "text", "text": exchange.question}]}]
    says: list[Any] = [{"type": "text", "text": exchange.says}]
    if not exchange.calls:
        return [{"role": "assistant", "content": says}]
    says += [{"type": "tool_use", "id": call.id, "name": call.tool, "input": call.arguments} for call in exchange.calls]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": call.result} for call in exchange.calls]
    return [{"role": "assistant", "content": says}, {"role": "user", "content": results}]


def anthropic(messages: list[Any], stream: bool, tools: bool) -> dict[str, Any]:
    request: dict[str, Any] = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1024,
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        "messages": messages,
    }
    if tools:
        request["tools"] = [{"name": name, "description": does, "input_schema": schema} for name, does, schema in TOOLS]
    return request | ({"stream": True} if stream else {})


SHAPES = {"chat": (chat_messages, chat), "anthropic": (anthropic_messages, anthropic)}


def body(shape: str, size: str, *, stream: bool = False, cold: bool = False) -> bytes:
    """A request body of `SIZES[size]` bytes. Its last message carries a salt; every text does with `cold`."""
    messages_of, request_of = SHAPES[shape]
    draw = Draw(f"{size}, {cold}")
    salt = f"{SALT} " if cold else ""
    tools = SIZES[size] > 10_000
    last = messages_of(Exchange(question=f"Thank you. Now go on, and say what is left to do. {SALT}"))

    def written(exchanges: list[Exchange], padding: str) -> bytes:
        messages = [message for exchange in exchanges for message in messages_of(exchange)]
        return compact(request_of([*messages, *messages_of(Exchange(says=salt + padding)), *last], stream, tools))

    def size_of(exchange: Exchange) -> int:
        return len(compact(messages_of(exchange))) - 1  # a comma in place of the brackets

    exchanges = history(draw, SIZES[size] - len(written([], "")), salt, size_of)
    missing = SIZES[size] - len(written(exchanges, ""))
    padding = text(draw, prose, 2 * missing).replace("\n", " ")
    return written(exchanges, padding[:missing])


def main(directory: Path, sizes: Sequence[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for shape in SHAPES:
        for size in sizes:
            (directory / f"{shape}-{size}.json").write_bytes(body(shape, size))
            (directory / f"{shape}-{size}-stream.json").write_bytes(body(shape, size, stream=True))
            (directory / f"{shape}-{size}-cold.json").write_bytes(body(shape, size, cold=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(SIZES))
