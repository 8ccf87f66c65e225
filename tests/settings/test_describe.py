"""The settings as they may be shown."""

from __future__ import annotations

import json

from app.settings import Settings, describe

from .conftest import Load


def test_secrets_are_masked_and_all_else_is_shown(loaded: Load) -> None:
    shown = describe(
        loaded(
            """
            admin: {token: hunter2}
            auth: {keys: [hunter2, hunter2x], clients: {ann: {key: hunter2y}}}
            upstreams:
              a: {base_url: https://x/y, formats: [gemini], api_key: hunter2, headers: {X-Secret: hunter2}}
            store: {url: "redis://me:hunter2/@hunter2@h:1/0?password=hunter2", encryption_key: aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMmh1bnQ=}
            archive: {url: "s3://hunter2@bucket/prefix"}
            policies: [{match: {headers: {authorization: "Bearer hunter2*"}}}]
            """
        )
    )
    assert "hunter2" not in json.dumps(shown)
    assert shown["admin"] == {"token": "***", "protect_metrics": False}
    assert shown["auth"] == {
        "keys": ["***", "***"],
        "clients": {"ann": {"key": "***", "policy": None, "upstreams": []}},
    }
    upstream = shown["upstreams"]["a"]
    assert (upstream["base_url"], upstream["api_key"], upstream["headers"]) == (
        "https://x/y",
        "***",
        {"x-secret": "***"},
    )
    assert (shown["store"]["url"], shown["store"]["encryption_key"]) == ("redis://***@h:1/0?***", "***")
    assert shown["archive"]["url"] == "s3://***@bucket/prefix"
    assert shown["policies"][0]["match"]["headers"] == {"authorization": "***"}
    assert shown["policies"][0]["trigger_threshold"] == 0.8


def test_what_is_not_set_is_null_not_masked() -> None:
    shown = describe(Settings())
    assert list(shown) == list(Settings.model_fields)
    assert (
        shown["admin"]["token"] is shown["store"]["encryption_key"] is shown["upstreams"]["openai"]["api_key"] is None
    )
    assert shown["store"]["url"] == "sqlite:///data/compactd.db"


def test_files_are_shown_by_path(loaded: Load) -> None:
    settings = loaded("policies: [{summary_prompt_file: compactd.yaml}]")
    assert json.loads(json.dumps(describe(settings)))["policies"][0]["summary_prompt_file"] == "compactd.yaml"
