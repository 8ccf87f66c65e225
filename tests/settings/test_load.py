"""What loads, and to what: defaults, the file, `${NAME}`, the environment, the command line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from app.settings import Settings, load

from .conftest import Load

ROOT = Path(__file__).parents[2]

# the example of the design document, with its "…" left out
DESIGN = """
listen:    {host: 127.0.0.1, port: 8787, workers: 1, public_url: null}
admin:     {token: null, protect_metrics: false}
auth:      {keys: []}
upstreams:
  openai:    {base_url: "https://api.openai.com", formats: [openai-chat, openai-responses]}
  anthropic: {base_url: "https://api.anthropic.com", formats: [anthropic-messages]}
  gemini:    {base_url: "https://generativelanguage.googleapis.com", formats: [gemini]}
  fireworks: {base_url: "https://api.fireworks.ai/inference", formats: [openai-chat], models: ["accounts/fireworks/*"],
              api_key: null, headers: {}, connect_timeout: 10, read_timeout: 600}
store:     {url: "sqlite:///data/compactd.db", timeout: 0.25, session_ttl: 604800, checkpoint_ttl: 604800,
            archive_ttl: 2592000, encryption_key: null}
archive:   {url: null, access: link}
models:    {"my-model*": {context_window: 32000, encoding: o200k_base, quirks: []}}
policies:
  - {name: default, match: {models: ["*"], formats: [], upstreams: [], headers: {}}, strategy: combined, trigger_threshold: 0.8}
limits:    {max_body_bytes: 67108864, drain_seconds: 30}
console:   {enabled: true, content: true}
log:       {level: info, format: auto}
"""


@pytest.mark.parametrize(
    "text", [None, "{}", "# nothing but a remark\n", "policies:\n# all commented out\nlisten:\n", "---\n"]
)
def test_nothing_set_means_the_defaults(loaded: Load, text: str | None) -> None:
    assert loaded(text) == Settings()


def test_the_design_example_loads_and_states_the_defaults(loaded: Load) -> None:
    settings, default = loaded(DESIGN), Settings()
    for section in ("listen", "admin", "auth", "store", "archive", "limits", "console", "log"):
        assert getattr(settings, section) == getattr(default, section)
    fireworks = settings.upstreams["fireworks"]
    assert {name: each for name, each in settings.upstreams.items() if name != "fireworks"} == default.upstreams
    assert (fireworks.base_url, fireworks.models) == ("https://api.fireworks.ai/inference", ("accounts/fireworks/*",))
    assert settings.models["my-model*"].context_window == 32000
    assert settings.policies[0].strategy == "combined"


def test_the_shipped_file_is_the_defaults_but_for_the_strategy() -> None:
    settings = load(ROOT / "config" / "compactd.yaml", {})
    policy = Settings().policies[0].model_copy(update={"strategy": "tool_result_clearing"})
    assert settings == Settings().model_copy(update={"policies": (policy,)})


def test_the_shipped_file_shows_every_section() -> None:
    assert list(yaml.safe_load((ROOT / "config" / "compactd.yaml").read_text(encoding="utf-8"))) == list(
        Settings.model_fields
    )


def test_the_examples_in_the_shipped_file_load(loaded: Load) -> None:
    text = (ROOT / "config" / "compactd.yaml").read_text(encoding="utf-8").replace("models: {}", "")
    text = re.sub(r"^  # (?![A-Z])", "  ", text, flags=re.M)  # examples; remarks begin with a capital
    text = re.sub(r"^# (models:|  )", r"\1", text, flags=re.M)
    settings = loaded(text, {"FIREWORKS_API_KEY": "k"})
    assert list(settings.upstreams) == ["openai", "anthropic", "gemini", "fireworks", "local"]
    assert settings.upstreams["local"].quirks == ("alternating_roles",)
    assert settings.models["my-model*"].context_window == 32000
    assert [policy.name for policy in settings.policies] == ["default", "claude", "agents", "trial"]


def test_thresholds_keep_their_kind(loaded: Load) -> None:
    policy = loaded(
        """
        policies:
          - {trigger_threshold: 2000, target_threshold: 1, clear_at_least: 0, fold_rounds_above: 1.0, prepare_threshold: null}
        """
    ).policies[0]
    values = [policy.trigger_threshold, policy.target_threshold, policy.clear_at_least, policy.fold_rounds_above]
    assert [(value, type(value)) for value in values] == [(2000, int), (1, int), (0, int), (1.0, float)]


@pytest.mark.parametrize(("text", "value"), [("0.8", 0.8), ("2000", 2000), ("1", 1), ("1.0", 1.0)])
def test_thresholds_keep_their_kind_through_environment_and_substitution(loaded: Load, text: str, value: float) -> None:
    by_environment = loaded(
        "{}", {"COMPACTD_POLICIES__0__TRIGGER_THRESHOLD": text, "COMPACTD_POLICIES__0__TARGET_THRESHOLD": text}
    )
    by_substitution = loaded("policies: [{trigger_threshold: '${T}', target_threshold: '${T}'}]", {"T": text})
    for settings in (by_environment, by_substitution):
        found = settings.policies[0].trigger_threshold
        assert (found, type(found)) == (value, type(value))


def test_mode_on_and_off_are_words(loaded: Load) -> None:
    settings = loaded("policies: [{name: a, mode: on}, {name: b, mode: off}]")
    assert [policy.mode for policy in settings.policies] == ["on", "off"]


def test_substitution(loaded: Load) -> None:
    settings = loaded(
        """
        listen:
          port: ${PORT}
          public_url: https://${HOST:-example.com}/c
        admin: {token: "${TOKEN}"}
        store: {url: "redis://:${PW}@h:1/0", encryption_key: "${NOT_SET:-}"}
        policies:
          - summary_prompt: |
              Costs $5, ends with $${HOST}.
        """,
        {"PORT": "9000", "TOKEN": "12345", "PW": "s3cret", "HOST": ""},
    )
    assert (settings.listen.port, settings.listen.public_url) == (9000, "https://example.com/c")
    assert settings.admin.token
    assert settings.admin.token.get_secret_value() == "12345"
    assert (settings.store.url, settings.store.encryption_key) == ("redis://:s3cret@h:1/0", None)
    assert settings.policies[0].summary_prompt == "Costs $5, ends with ${HOST}.\n"


def test_environment_wins_over_the_file_and_the_command_line_over_both(loaded: Load) -> None:
    text = "listen: {port: 1, host: 127.0.0.1, workers: 2}"
    environ = {"COMPACTD_LISTEN__PORT": "2", "COMPACTD_LISTEN__WORKERS": "3"}
    settings = loaded(text, environ, {"listen.port": 4, "listen.host": None, "log.level": "debug"})
    assert (settings.listen.port, settings.listen.workers, settings.listen.host) == (4, 3, "127.0.0.1")
    assert settings.log.level == "debug"


def test_environment_reaches_everything(loaded: Load) -> None:
    settings = loaded(
        """
        upstreams:
          My-LLM: {base_url: https://a.example, formats: [gemini]}
        policies:
          - {name: one, strategy: summarize}
        """,
        {
            "COMPACTD_UPSTREAMS__MY_LLM__API_KEY": "0123",
            "COMPACTD_UPSTREAMS__MY_LLM__FORMATS": "[openai-chat]",
            "COMPACTD_UPSTREAMS__EXTRA": '{"base_url": "https://b.example", "formats": ["gemini"]}',
            "COMPACTD_UPSTREAMS__EXTRA__READ_TIMEOUT": "5.5",
            "COMPACTD_AUTH__KEYS__0": "007",
            "COMPACTD_AUTH__KEYS__1": "second",
            "COMPACTD_POLICIES__0__STRATEGY": "sliding_window",
            "COMPACTD_POLICIES__0__FOLD_ROUNDS_ABOVE": "null",
            "COMPACTD_POLICIES__0__MODE": "off",
            "COMPACTD_POLICIES__0__MATCH__MODELS": "[claude-*]",
            "COMPACTD_POLICIES__0__EXCLUDE_TOOLS__0": "bash",
            "COMPACTD_POLICIES__1__NAME": "two",
            "COMPACTD_MODELS": '{"my*": {"context_window": 5}}',
            "COMPACTD_CONSOLE__CONTENT": "false",
            "COMPACTD_STORE__URL": "",
        },
    )
    llm = settings.upstreams["My-LLM"]
    assert llm.api_key
    assert (llm.api_key.get_secret_value(), llm.formats, llm.base_url) == (
        "0123",
        ("openai-chat",),
        "https://a.example",
    )
    assert settings.upstreams["extra"].read_timeout == 5.5
    assert [key.get_secret_value() for key in settings.auth.keys] == ["007", "second"]
    one, two = settings.policies
    assert (one.strategy, one.fold_rounds_above, one.mode, one.exclude_tools) == (
        "sliding_window",
        None,
        "off",
        ("bash",),
    )
    assert (one.match.models, two.name) == (("claude-*",), "two")
    assert settings.models["my*"].context_window == 5
    assert not settings.console.content
    assert settings.store == Settings().store


def test_environment_adjusts_the_defaults_where_the_file_is_silent(loaded: Load) -> None:
    settings = loaded(None, {"COMPACTD_UPSTREAMS__OPENAI__API_KEY": "k", "COMPACTD_POLICIES__0__STRATEGY": "combined"})
    assert list(settings.upstreams) == ["openai", "anthropic", "gemini"]
    assert settings.upstreams["openai"].api_key
    assert (settings.policies[0].name, settings.policies[0].strategy) == ("default", "combined")


def test_a_list_given_whole_replaces_and_may_be_refined(loaded: Load) -> None:
    environ = {"COMPACTD_POLICIES": "[{name: x}, {name: y}]", "COMPACTD_POLICIES__1__STRATEGY": "combined"}
    settings = loaded("policies: [{name: a}]", environ)
    assert [(policy.name, policy.strategy) for policy in settings.policies] == [("x", "summarize"), ("y", "combined")]


def test_variables_that_are_no_options_are_left_alone(loaded: Load) -> None:
    environ = {
        "COMPACTD_CONFIG": "compactd.yaml",
        "COMPACTD_TOKEN": "t",  # the file asks for it
        "COMPACTD_PORT": "tcp://10.0.0.1:8787",
        "COMPACTD_PORT_8787_TCP_ADDR": "10.0.0.1",
        "COMPACTD_SERVICE_HOST": "10.0.0.1",
        "COMPACTD_REDIS_SERVICE_PORT_REDIS": "6379",
        "compactd_listen__port": "1",
        "PATH": "/bin",
    }
    assert loaded("admin: {token: '${COMPACTD_TOKEN}'}", environ).listen.port == 8787


def test_the_process_environment_is_not_read_behind_our_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTD_LISTEN__PORT", "1")
    assert os.environ["COMPACTD_LISTEN__PORT"] == "1"
    assert Settings().listen.port == load(None, {}).listen.port == 8787


def test_an_alias_repeats_a_value(loaded: Load) -> None:
    settings = loaded("policies:\n  - {name: a, exclude_tools: &tools [x]}\n  - {name: b, exclude_tools: *tools}\n")
    assert settings.policies[1].exclude_tools == ("x",)
