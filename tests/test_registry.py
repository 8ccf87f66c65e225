from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import registry
from app.registry import Registry, Row, Table, shipped

MODELS = json.loads(Path(registry.__file__).with_name("models.json").read_bytes())["models"]


@dataclass(frozen=True)
class Entry:
    context_window: int | None = None
    encoding: str | None = None
    quirks: Collection[str] = ()


class Told(list[str]):
    """A registry and the warnings that it gave."""

    def registry(self, overrides: dict[str, Entry] | None = None, table: Table | None = None) -> Registry:
        return Registry(overrides or {}, self.append, table)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.mark.parametrize(
    ("model", "window", "encoding"),
    [
        ("gpt-5.1", 272_000, "o200k_base"),
        ("gpt-5.4", 922_000, "o200k_base"),
        ("gpt-5-pro", 272_000, "o200k_base"),
        ("gpt-5.1-codex-max", 272_000, "o200k_base"),
        ("gpt-5.2-chat-latest", 111_616, "o200k_base"),
        ("gpt-4.1", 1_047_576, "o200k_base"),
        ("gpt-4o", 128_000, "o200k_base"),
        ("o4-mini", 200_000, "o200k_base"),
        ("gpt-4", 8_192, "cl100k_base"),
        ("gpt-4-0125-preview", 128_000, "cl100k_base"),
        ("gpt-4-turbo-2024-04-09", 128_000, "cl100k_base"),
        ("gpt-3.5-turbo", 16_385, "cl100k_base"),
        ("claude-haiku-4-5", 200_000, "o200k_base"),
        ("claude-sonnet-5-5", 1_000_000, "o200k_base"),
        ("gemini-2.5-pro", 1_048_576, "o200k_base"),
        ("gemini-2.5-flash-image", 65_536, "o200k_base"),
        ("deepseek-v4-pro", 1_000_000, "o200k_base"),
        ("mistral-large-latest", 262_144, "o200k_base"),
        ("grok-4.7", 500_000, "o200k_base"),
        ("accounts/fireworks/models/kimi-k2p5", 262_144, "o200k_base"),
    ],
)
def test_input_limits_and_encodings(model: str, window: int, encoding: str, told: Told) -> None:
    found = told.registry().lookup(model)
    assert (found.context_window, found.encoding, found.known) == (window, encoding, True)
    assert told == []


@pytest.mark.parametrize(
    ("written", "row"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("us-gov.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
        ("publishers/anthropic/models/claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("claude-opus-4-6@default", "claude-opus-4-6"),
        ("databricks-claude-opus-4-5", "claude-opus-4-5"),
        ("claude-4.5-opus", "claude-opus-4-5"),
        ("claude-4-5-opus-thinking", "claude-opus-4-5"),
        ("claude-sonnet-3.7", "claude-3-7-sonnet"),
        ("anthropic/claude-3.5-sonnet:beta", "claude-3-5-sonnet"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-opus-5[1m]", "claude-opus-5"),
        (" Claude-Opus-5 ", "claude-opus-5"),
        ("openai/gpt-5.1", "gpt-5.1"),
        ("openai.gpt-5.4", "gpt-5.4"),
        ("azure/eu/gpt-5.1-2025-11-13", "gpt-5.1"),
        ("gpt-5.1-2025-11-13", "gpt-5.1"),
        ("gpt-5-1", "gpt-5.1"),
        ("openai/gpt-5.4:online", "gpt-5.4"),
        ("gpt-5.4-high", "gpt-5.4"),
        ("ft:gpt-4o-mini-2024-07-18:acme:billing:abc123", "gpt-4o-mini"),
        ("openai.gpt-oss-120b-1:0", "accounts/fireworks/models/gpt-oss-120b"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("projects/p/locations/l/publishers/google/models/gemini-2.5-flash-001", "gemini-2.5-flash"),
        ("gemini-2.5-pro-preview-05-06", "gemini-2.5-pro"),
        ("gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash"),
        ("google/gemini-3-flash", "gemini-3-flash-preview"),
        ("accounts/fireworks/models/kimi-k3#accounts/me/deployments/d", "accounts/fireworks/models/kimi-k3"),
        ("moonshotai/Kimi-K2.5", "accounts/fireworks/models/kimi-k2p5"),
        ("meta-llama/Llama-3.3-70B-Instruct", "accounts/fireworks/models/llama-v3p3-70b-instruct"),
        ("us.deepseek.r1-v1:0", "deepseek-r1"),
        ("deepseek/deepseek-v4-pro:free", "deepseek-v4-pro"),
        ("mistralai/mistral-large", "mistral-large-latest"),
        ("x-ai/grok-4.7", "grok-4.7"),
        ("grok-4.7-latest", "grok-4.7"),
        ("gpt-5.7-codex-max", "gpt-5*-codex*"),
    ],
)
def test_other_spellings_find_the_row(written: str, row: str, told: Told) -> None:
    found = told.registry().lookup(written)
    assert found.name == row
    assert found.known
    assert told == []


@pytest.mark.parametrize(
    "model",
    ["gpt-5.9", "gpt-5.1-mega", "gpt-7", "claude-opus-5-9", "claude-opus-6", "gemini-3-ultra", "mistral-large-2402",
     "grok-4.7-turbo", "my-llama:8b", "kimi-k2-instruct-9999", "gpt", "", ":", "@", "/", "-preview", "ft:", "[1m]", "*"],
)  # fmt: skip
def test_what_may_be_another_model_is_unknown(model: str, told: Told) -> None:
    found = told.registry().lookup(model)
    assert (found.context_window, found.known, found.name) == (128_000, False, model)
    assert len(told) == 1


def test_the_warning_names_the_key_to_add_and_comes_once(told: Told) -> None:
    asked = told.registry()
    for _ in range(3):
        asked.lookup('my-model"\n')
        asked.label('my-model"\n')
    assert len(told) == 1
    assert 'models: {"my-model\\"\\n": {context_window: …}}' in told[0]
    assert "128,000" in told[0]
    assert "\n" not in told[0]


def test_every_row_is_found_by_its_own_name_and_is_sane() -> None:
    for name, about in MODELS.items():
        row = shipped().find(name)
        assert row is not None
        assert row.name == name
        assert row.context_window == about["context_window"] >= 8_192 or name == "computer-use-preview"
        assert row.encoding in ("o200k_base", "cl100k_base")
        assert name == name.lower()
    assert list(MODELS) == sorted(MODELS)


def test_the_file_is_small_and_one_model_a_line() -> None:
    path = Path(registry.__file__).with_name("models.json")
    assert path.stat().st_size < 150_000
    lines = path.read_text().splitlines()
    assert all(any(line.startswith(f"  {json.dumps(name)}: {{") for line in lines) for name in MODELS)


def test_every_quirk_is_explained_in_the_head() -> None:
    data = json.loads(Path(registry.__file__).with_name("models.json").read_bytes())
    explained = {part.partition("=")[0] for key in data["quirks"] for part in key.split(", ")}
    used = {quirk for about in data["models"].values() for quirk in about.get("quirks", ())}
    used |= {quirk for quirks in data["families"].values() for quirk in quirks}
    used |= {quirk for _, quirks in registry._CLAUDE_SINCE for quirk in quirks}
    assert {quirk.partition("=")[0].removeprefix("-") for quirk in used} == explained


@pytest.mark.parametrize(
    ("model", "binds"),
    [
        ("claude-fable-5-1", True),
        ("claude-opus-5-5", True),
        ("claude-5.5-haiku", True),
        ("anthropic/claude-mythos-5.2:thinking", True),
        ("us.anthropic.claude-sonnet-5-5-20261001-v1:0", True),
        ("claude-newfamily-6", True),
        ("claude-newfamily-10-20270101", True),
        ("claude-opus-5", False),
        ("claude-opus-5-20260301", False),
        ("claude-opus-5-v1:0", False),
        ("claude-opus-5-1m", False),
        ("claude-opus-4-8", False),
        ("claude-3-5-sonnet-20241022", False),
        ("claude-mythos-preview", False),
        ("claude-instant-v1", False),
        ("gpt-5.1", False),
    ],
)
def test_binds_thinking_goes_by_version_in_any_family(model: str, binds: bool, told: Told) -> None:
    assert ("binds_thinking" in told.registry().lookup(model).quirks) is binds


@pytest.mark.parametrize(
    ("model", "has", "lacks"),
    [
        ("claude-haiku-4-5", (), ("supports_server_compaction", "adaptive_thinking", "no_sampling")),
        ("claude-opus-4-5", (), ("supports_server_compaction",)),
        ("claude-sonnet-4-5", (), ("supports_server_compaction",)),
        ("claude-sonnet-4-6", ("supports_server_compaction", "adaptive_thinking"), ("no_manual_thinking",)),
        (
            "claude-opus-4-7",
            ("supports_server_compaction", "no_manual_thinking", "no_sampling"),
            ("thinking_always_on",),
        ),
        ("claude-haiku-5-5", ("supports_server_compaction",), ("thinking_always_on",)),
        ("claude-fable-5", ("supports_server_compaction", "thinking_always_on"), ("binds_thinking",)),
        ("claude-fable-7", ("thinking_always_on", "binds_thinking"), ("supports_server_compaction",)),
        ("mistral-large-latest", ("alternating_roles",), ()),
        ("mistral-nemo:12b", ("alternating_roles",), ()),
        ("accounts/fireworks/models/mixtral-8x22b-instruct", ("alternating_roles",), ()),
        ("google/gemma-3-27b-it", ("alternating_roles",), ()),
        ("llama2:13b", ("alternating_roles",), ()),
        ("gemini-2.5-pro", (), ("alternating_roles",)),
        ("llama-3.3-70b-instruct", (), ("alternating_roles",)),
        ("deepseek-v4-pro", ("keeps_reasoning",), ()),
        ("deepseek.v4-pro", ("keeps_reasoning",), ()),
        ("deepseek-r1", (), ("keeps_reasoning",)),
        ("gpt-5.4", ("max_completion_tokens",), ()),
        ("gpt-4.1", (), ("max_completion_tokens",)),
    ],
)
def test_quirks(model: str, has: tuple[str, ...], lacks: tuple[str, ...], told: Told) -> None:
    quirks = told.registry().lookup(model).quirks
    assert quirks.issuperset(has)
    assert quirks.isdisjoint(lacks)


def test_facts_are_numbers_and_the_special_one_wins(told: Told) -> None:
    asked = told.registry()
    assert asked.lookup("claude-haiku-4-5").fact("token_ratio", 1.0) == 1.2
    assert asked.lookup("claude-opus-4-7").fact("token_ratio", 1.0) == 1.5
    assert asked.lookup("gpt-5.1").fact("token_ratio", 1.0) == 1.0
    assert asked.lookup("claude-opus-5").fact("cache_min", 0) == 512
    assert asked.lookup("gemini-3.8-flash").fact("image_tokens", 0) == 1120
    assert asked.lookup("gpt-4o-mini").fact("image_tile", 0) == 5667
    assert asked.lookup("gpt-5").fact("image_patch", 0) == 0


def test_configuration_wins_exact_before_glob_in_order(told: Told) -> None:
    asked = told.registry(
        {
            "my-*": Entry(context_window=32_000, encoding="cl100k_base"),
            "my-model": Entry(context_window=16_000),
            "my-model-*": Entry(context_window=1),
            "gpt-5.1": Entry(context_window=100_000, quirks=["odd", "-max_completion_tokens"]),
            "claude-*": Entry(quirks=["-binds_thinking", "cache_min=7"]),
            "Big-[ab]?": Entry(context_window=5_000_000),
        }
    )
    assert asked.lookup("My-Model").context_window == 16_000
    assert asked.lookup("my-model-2").context_window == 32_000
    assert asked.lookup("my-model-2").encoding == "cl100k_base"
    assert asked.lookup("big-a1").context_window == 5_000_000
    strict = asked.lookup("gpt-5.1")
    assert strict.context_window == 100_000
    assert {"odd", "no_sampling"} <= strict.quirks
    assert "max_completion_tokens" not in strict.quirks
    claude = asked.lookup("claude-opus-5-5")
    assert (claude.context_window, claude.fact("cache_min", 0)) == (1_000_000, 7)
    assert "binds_thinking" not in claude.quirks
    assert told == []
    assert not asked.lookup("claude-unheard-of").known
    assert len(told) == 1


def test_labels_are_bounded(told: Told) -> None:
    asked = told.registry({"my-*": Entry(context_window=32_000), "their-*": Entry(quirks=["odd"])})
    assert asked.label("us.anthropic.claude-opus-4-5-20251101-v1:0") == "claude-opus-4-5"
    assert asked.label("my-model") == asked.label("my-other-model") == "my-*"
    assert asked.label("their-model") == asked.label("nobody-knows") == "other"
    asked.learn("nobody-knows", "", 50_000)
    assert asked.label("nobody-knows") == "other"


def test_learnt_windows_belong_to_a_model_and_an_upstream(told: Told) -> None:
    asked = told.registry()
    assert not asked.lookup("local", "ollama").known
    asked.learn("local", "ollama", 300_000)
    assert asked.lookup("local", "ollama").context_window == 300_000
    assert asked.lookup("local", "ollama").known
    assert asked.lookup("local", "vllm").context_window == 128_000
    assert not asked.lookup("local").known
    asked.learn("gpt-5.4", "copilot", 272_000)
    assert asked.lookup("gpt-5.4", "copilot").context_window == 272_000
    assert asked.lookup("gpt-5.4", "openai").context_window == 922_000
    asked.learn("gpt-5.4", "openai", 2_000_000)
    assert asked.lookup("gpt-5.4", "openai").context_window == 922_000
    asked.learn("local", "ollama", 12)
    assert asked.lookup("local", "ollama").context_window == 300_000


def test_what_was_learnt_belongs_to_a_tenant_and_outlives_a_reload(told: Told) -> None:
    asked, anew = told.registry(), told.registry()
    asked.learn("local", "vllm", 9_000, "ann")
    asked.learn_quirk("local", "alternating_roles", "ann")
    asked.learn_quirk("local", "binds_thinking", "ann")
    anew.remember(asked)
    for registry_ in (asked, anew):
        anns, bobs = [registry_.lookup("local", "vllm", tenant) for tenant in ("ann", "bob")]
        assert (anns.context_window, bobs.context_window) == (9_000, 128_000)
        assert (anns.quirks, bobs.quirks) == ({"alternating_roles", "binds_thinking"}, frozenset())


def test_a_stranger_cannot_fill_the_memory(told: Told) -> None:
    asked = told.registry()
    for number in range(3_000):
        asked.lookup(f"made-up-{number}")
        asked.learn(f"made-up-{number}", "u", 50_000)
        asked.learn_quirk(f"made-up-{number}", "thinks", "t")
    asked.lookup("x" * 1_000_000)
    asked.lookup("x" * 1_000_001)
    for kept in (asked._models, asked._learnt, asked._lessons):
        assert len(kept) == registry.BOUND
    assert len(asked._warned) == registry.BOUND == len(told)
    assert max(map(len, told)) < 2_000
    assert max(map(len, asked._models._kept)) == registry.LONGEST_NAME
    assert asked.lookup("made-up-2999", "u").context_window == 50_000
    assert asked.lookup("made-up-0", "u").context_window == 128_000


def test_what_is_used_is_not_forgotten_for_a_strangers_names(told: Told) -> None:
    asked = told.registry()
    asked.learn("local", "vllm", 9_000, "ann")
    asked.learn_quirk("local", "binds_thinking", "ann")
    for number in range(3_000):
        asked.learn(f"made-up-{number}", "vllm", 50_000, "bob")
        asked.learn_quirk(f"made-up-{number}", "thinks", "bob")
        found = asked.lookup("local", "vllm", "ann")
        assert (found.context_window, found.quirks) == (9_000, {"binds_thinking"})


def test_two_hosts_of_one_model_leave_the_smaller_window(told: Told) -> None:
    table = Table([Row("a/models/x-1p5", 9_000), Row("x-1.5-latest", 7_000), Row("b/x-1.5", 8_000)])
    asked = told.registry(table=table)
    assert asked.lookup("a/models/x-1p5").context_window == 9_000
    assert asked.lookup("elsewhere/x-1-5").context_window == 8_000
    assert asked.lookup("x-1.5-latest").context_window == 7_000


@given(st.text(max_size=40), st.sampled_from(["", "claude-", "gpt-5.1-", "us.anthropic.", "ft:", "models/"]))
def test_any_name_has_an_answer(name: str, start: str) -> None:
    found = Registry({}, lambda _: None).lookup(start + name)
    assert found.context_window > 0
    assert found.known or found.context_window == registry.UNKNOWN_WINDOW
