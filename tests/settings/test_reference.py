"""The reference says what the models say."""

from __future__ import annotations

import re

from app.settings import Settings, schema
from app.settings.reference import FILE, markdown

# names and defaults are fixed by the design document
PARAMETERS = {
    "mode": "on",
    "strategy": "summarize",
    "trigger_threshold": 0.8,
    "target_threshold": 0.5,
    "clear_at_least": 0.05,
    "min_messages_before_compaction": 4,
    "max_compactions_per_session": None,
    "compact_first_request": True,
    "keep_recent_messages": 5,
    "keep_recent_turns": None,
    "keep_recent_tool_results": 3,
    "clear_tool_inputs": False,
    "exclude_tools": (),
    "sliding_window_include_truncation_notice": True,
    "combined_order": ("tool_result_clearing", "sliding_window", "summarize"),
    "summary_model": None,
    "summary_prompt": None,
    "summary_prompt_file": None,
    "summary_max_tokens": 4096,
    "summary_timeout": 60,
    "summary_fallback": "sliding_window",
    "protect_current_turn": True,
    "fold_rounds_above": 0.95,
    "prepare_threshold": None,
    "idle_threshold": None,
    "cache_ttl": 300,
    "max_tool_result_tokens": None,
    "keep_user_messages": 4000,
    "keep_values": 1000,
    "history_mode": "full",
    "thinking_binding": "drop_block",
    "keepalive_seconds": None,
    "archive_history": True,
    "include_archive_path_in_summary": True,
}


def test_the_written_reference_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == markdown(), "run python -m app.settings.reference"


def test_every_option_is_explained() -> None:
    assert [schema.path(path) for path, field in schema.options() if not field.description] == []


def test_parameters_have_the_names_and_defaults_of_the_design() -> None:
    policy = Settings().policies[0]
    assert {
        name: getattr(policy, name) for name in type(policy).model_fields if name not in ("name", "match")
    } == PARAMETERS


def test_every_option_has_its_row() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", markdown(), flags=re.M)
    assert rows == [schema.path(path) for path, _ in schema.options()]
    assert {"policies[].match.models", "upstreams.<name>.base_url", "store.url", "listen.port"} <= set(rows)
    assert not re.findall(r"^\|(?:[^|\n]|\\\|)*\|(?:[^|\n]|\\\|)*\|\n", markdown(), flags=re.M)
