"""The command line: thin doors, plain answers, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app import __version__, cli
from app.settings import Settings
from tests.edge.talks import Talk, compacted
from tests.edge.wire import compactd, configured
from tests.strict.server import StrictProvider

LOW = "policies: [{name: low, strategy: tool_result_clearing, trigger_threshold: 1500, keep_recent_tool_results: 1}]\n"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, without the environment's settings."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("COMPACTD_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def run(*words: str, given: bytes | None = None, code: int = 0) -> str:
    """What a command prints; its complaints, if it ends with an error."""
    result = CliRunner().invoke(cli.cli, words, input=given)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_version() -> None:
    assert run("version").strip() == __version__
    assert run("--version").strip() == run("-V").strip() == f"compactd {__version__}"


def test_help_names_every_command() -> None:
    told = run("--help")
    assert all(word in told for word in ("serve", "check", "preview", "replay", "archive", "mcp", "version"))


# check


def test_check_without_a_file() -> None:
    told = run("check")
    assert told.startswith("built-in defaults: sound")
    assert "upstream anthropic: https://api.anthropic.com (anthropic-messages)" in told
    assert "policy default: summarize" in told


def test_check_finds_the_file_where_serve_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "compactd.yaml").write_text(LOW)
    assert run("check").startswith("config/compactd.yaml: sound")
    other = tmp_path / "other.yaml"
    other.write_text(LOW.replace("low", "other"))
    monkeypatch.setenv("COMPACTD_CONFIG", str(other))
    assert "policy other" in run("check")
    assert "policy low" in run("check", "--config", "config/compactd.yaml")


def test_check_takes_the_file_without_a_word_before_it(tmp_path: Path) -> None:
    (tmp_path / "low.yaml").write_text(LOW)
    assert run("check", "low.yaml") == run("check", "--config", "low.yaml")
    told = run("check", "low.yaml", "--config", "other.yaml", code=1)
    assert told == "Two configuration files, low.yaml and other.yaml: name one.\n"
    assert "nosuch.yaml" in run("serve", "nosuch.yaml", code=1)


def test_check_tells_all_faults_at_once(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "listen: {prot: 1}\n"
        "store: {url: nosuch://x}\n"
        "policies:\n"
        "  - {name: a, strategy: sumarize}\n"
        "  - {name: a, trigger_threshold: 1.5}\n"
        "upstreams: {u: {base_url: ftp://x, formats: [openai]}}\n"
    )
    told = run("check", "--config", str(file), code=1)
    lines = told.strip().splitlines()
    assert len(lines) >= 6
    for words in ("prot", "store.url", "strategy", "trigger_threshold", "base_url", "formats"):
        assert any(words in line for line in lines), words
    assert any(re.search(r"bad\.yaml:4\b", line) for line in lines)
    assert any("port" in line and "prot" in line for line in lines)


def test_check_tells_what_is_not_there_along_with_other_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such.pem")
    file = tmp_path / "bad.yaml"
    file.write_text(
        "log: {level: loud}\n"
        "store: {url: 'rediss://h:1/0?ssl_ca_certs=/no/such.pem'}\n"
        "policies:\n"
        "  - {name: a, mode: maybe, strategy: 'no_such_module:compact'}\n"
    )
    told = run("check", str(file), code=1).splitlines()
    assert [line.removeprefix(str(tmp_path)).partition("; ")[0] for line in told] == [
        "/bad.yaml:1: log.level: must be debug, info, warning, error or critical",
        "/bad.yaml:2: store.url: is not a usable rediss:// address: the file of ssl_ca_certs can't be read (No such file or directory).",
        "/bad.yaml:4: policies[0].mode: must be on, observe or off",
        "/bad.yaml:4: policies[0].strategy: there is no module no_such_module",
        "SSL_CERT_FILE: the file that it names can't be read (No such file or directory)",
    ]


def test_check_counts_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTD_LISTEN__PORT", "seventy")
    assert "COMPACTD_LISTEN__PORT" in run("check", code=1)


def test_file_that_is_not_there() -> None:
    assert "nosuch.yaml" in run("check", "--config", "nosuch.yaml", code=1)


# preview


def saved(tmp_path: Path, body: Any) -> str:
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "compactd.yaml").write_text(LOW)
    (tmp_path / "body.json").write_text(body if isinstance(body, str) else json.dumps(body))
    return "body.json"


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses", "anthropic-messages", "gemini"])
def test_preview_knows_the_format_by_the_body(form: str, tmp_path: Path) -> None:
    file = saved(tmp_path, Talk(form).ask("Read.").rounds(8).body)
    told = dict(line.split(":", 1) for line in run("preview", file).splitlines())
    assert (told["outcome"].strip(), told["format"].strip(), told["policy"].strip()) == ("compacted", form, "low")
    assert int(told["tokens_after"]) < int(told["tokens_before"])


def test_preview_of_the_body_alone_can_be_sent(tmp_path: Path) -> None:
    text = '{"model":"gpt-4o" , "messages": [ {"role":"user","content":"\\u00e4 \u20ac", "n": 1e2} ]}'
    assert run("preview", saved(tmp_path, text), "--body") == text + "\n"
    file = saved(tmp_path, Talk("openai-chat").ask("Read.").rounds(8).body)
    assert compacted(json.loads(run("preview", file, "--body")))


def test_preview_from_standard_input(tmp_path: Path) -> None:
    saved(tmp_path, "")
    body = json.dumps(Talk("anthropic-messages").ask("Read.").rounds(8).body).encode()
    assert "outcome:          compacted" in run("preview", "-", "--path", "/v1/messages", given=body)


def test_preview_with_another_policy(tmp_path: Path) -> None:
    file = saved(tmp_path, Talk("openai-chat").ask("Hi.").body)
    assert "There is no policy named 'nosuch'." in run("preview", file, "--policy", "nosuch", code=1)
    assert "outcome:          passed" in run("preview", file, "--policy", "low")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"no json", "not_json"), (b"[]", "can't be looked into"), (b"\xff\xfe", "not UTF-8"), (b"{}", "no_history")],
)
def test_preview_of_what_is_no_request(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_bytes(content)
    assert words in run("preview", "body.json", code=1)


def test_preview_of_no_file_or_no_conversation(tmp_path: Path) -> None:
    assert "nosuch.json can't be read" in run("preview", "nosuch.json", code=1)
    assert "/v1/embeddings is no path" in run(
        "preview", saved(tmp_path, {"messages": []}), "--path", "/v1/embeddings", code=1
    )


# replay


def test_replay_of_one_body(tmp_path: Path) -> None:
    (tmp_path / "low.yaml").write_text(LOW)
    (tmp_path / "talk.json").write_text(json.dumps(Talk("anthropic-messages").ask("Read.").rounds(12).body, indent=1))
    told = run("replay", "talk.json", "--config", "low.yaml")
    assert told.splitlines()[0].split() == [
        "request", "items", "tokens", "sent_on", "outcome", "strategy", "level", "cached", "reason",
    ]  # fmt: skip
    assert "tool_result_clearing" in told
    assert re.search(r"^requests: +13$", told, re.MULTILINE)


def test_replay_of_lines_as_json(tmp_path: Path) -> None:
    (tmp_path / "low.yaml").write_text(LOW)
    lines = "\n".join(json.dumps(Talk("openai-chat").ask("Read.").rounds(number).body) for number in (1, 9, 10))
    told = run("replay", "-", "--config", "low.yaml", "--json", given=lines.encode())
    *rows, total = map(json.loads, told.splitlines())
    assert [row["outcome"] for row in rows] == ["passed", "compacted", "replayed"]
    assert total["requests"] == 3


def test_replay_of_what_would_not_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(Talk("openai-chat").ask("Read.").rounds(2).body))
    assert "There is no policy named 'nix'." in run("replay", "talk.json", "--policy", "nix", code=1)
    (tmp_path / "said.json").write_text('{"messages": [{"role": "assistant", "content": "Yes."}]}')
    assert "asks the model for anything" in run("replay", "said.json", code=1)


def test_replay_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("\n")
    assert "is empty" in run("replay", "empty.json", code=1)
    assert "can't be read" in run("replay", "absent.json", code=1)


# archive


@pytest.fixture
def archived(tmp_path: Path) -> str:
    """The address of an archive in a store on disk, with a configuration that names it."""

    async def fill() -> str:
        provider, policies = (
            StrictProvider(),
            [{"strategy": "tool_result_clearing", "trigger_threshold": 1_500, "keep_recent_tool_results": 1}],
        )
        store = {"url": f"sqlite:///{tmp_path}/kept.db", "timeout": 5}
        async with provider.serve() as url, compactd(configured(url, policies=policies, store=store)) as proxy:
            answer = await proxy.ask(
                Talk("openai-chat").ask("Read.").rounds(8, "caf\u00e9\n" * 200).request("x-compactd-session: mine")
            )
            return answer["x-compactd-archive"]

    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "compactd.yaml").write_text(f"store: {{url: 'sqlite:///{tmp_path}/kept.db'}}\n")
    return asyncio.run(fill())


def test_archive_list_and_show(archived: str) -> None:
    (line,) = run("archive", "list").splitlines()
    when, ident, _, session = line.split()
    assert (session, ident) == ("mine", archived.split("/")[-2])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", when)
    by_name, by_address = run("archive", "show", ident), run("archive", "show", archived)
    assert by_name == by_address
    document = json.loads(by_name)
    assert (document["id"], len(document["items"]) > 3) == (ident, True)
    assert "café" in by_name


def test_archive_list_of_a_session(archived: str) -> None:
    assert archived
    assert run("archive", "list", "--session", "mine")
    assert run("archive", "list", "--session", "another") == ""


def test_archive_that_is_not_there(archived: str) -> None:
    assert archived
    told = run("archive", "show", "nosuch", code=1)
    assert re.search(r"There is no archive 'nosuch' in sqlite:///\S+ \(any more\); --config", told)


def test_archive_in_a_store_that_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "compactd.yaml").write_text("store: {url: 'redis://:hunter2@127.0.0.1:9/0'}\n")
    told = run("archive", "list", "--config", "compactd.yaml", code=1)
    assert "The store does not answer" in told
    assert "hunter2" not in told


# serve


def test_serve_with_a_wrong_option() -> None:
    assert "port" in run("serve", "--port", "70000", code=1)


def test_greeting_says_where_to_point_base_url(capsys: pytest.CaptureFixture[str]) -> None:
    cli._greet(Settings(log={"format": "console"}, listen={"port": 9000}), None)
    told = capsys.readouterr().err
    assert "base_url=http://127.0.0.1:9000/v1" in told
    assert "http://127.0.0.1:9000/compactd/" in told
    cli._greet(Settings(log={"format": "console"}, console={"enabled": False}), None)
    assert "/compactd/" not in capsys.readouterr().err
    cli._greet(Settings(log={"format": "json"}), None)
    assert capsys.readouterr().err == ""
