"""What requests ask of the settings."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from app.settings import Listen, Match, Policy, Settings, Upstream


def chosen(
    settings: Settings, model: str = "m", format: str = "gemini", upstream: str = "gemini", **headers: str
) -> str | None:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    policy = settings.policy_for(model, format, upstream, names)
    return policy and policy.name


def test_the_first_policy_that_matches_is_taken() -> None:
    settings = Settings(
        policies=(
            Policy(name="claude", match=Match(models=("claude-*", "anthropic/*"))),
            Policy(name="wire", match=Match(formats=("gemini",), upstreams=("gemini", "openai"))),
            Policy(name="team", match=Match(models=("gpt-[45]*",), headers={"X-Team": "a*", "x-kind": "*"})),
            Policy(name="rest"),
        )
    )
    assert chosen(settings, "claude-opus", "anthropic-messages", "anthropic") == "claude"
    assert chosen(settings, "anthropic/x/y") == "claude"
    assert chosen(settings, "gemini-3") == "wire"
    assert chosen(settings, "gemini-3", upstream="anthropic") == "rest"
    assert chosen(settings, "gpt-5", "openai-chat", x_team="ab", x_kind="") == "team"
    assert chosen(settings, "gpt-5", "openai-chat", x_team="ab") == "rest"
    assert chosen(settings, "gpt-5", "openai-chat", x_team="b", x_kind="k") == "rest"
    assert chosen(settings, "gpt-3", "openai-chat", x_team="ab", x_kind="k") == "rest"
    assert chosen(settings, "Claude-opus", "openai-chat") == "rest"
    assert chosen(settings, "an claude-opus", "openai-chat") == "rest"


def test_no_policy_matches() -> None:
    assert chosen(Settings(policies=(Policy(match=Match(models=("a",))),)), "ab") is None
    assert chosen(Settings(policies=())) is None
    assert chosen(Settings(policies=(Policy(match=Match(models=())),))) == "default"


def test_policy_named() -> None:
    settings = Settings(policies=(Policy(name="a"), Policy(name="b", mode="off")))
    assert settings.policy_named("b") is settings.policies[1]
    assert settings.policy_named("c") is None


def test_timeouts_are_the_upstreams_or_the_limits() -> None:
    upstream = Upstream(base_url="https://x/", formats=("gemini",), read_timeout=5, models=("a*",))
    settings = Settings(upstreams={"x": upstream})
    assert settings.timeouts("x") == (10, 5)
    with pytest.raises(KeyError):
        settings.timeouts("y")
    assert upstream.base_url == "https://x"
    assert (upstream.claims("ab"), upstream.claims("b")) == (True, False)
    assert not Settings().upstreams["openai"].claims("gpt")


@pytest.mark.parametrize(
    ("listen", "base"),
    [
        (Listen(), "http://127.0.0.1:8787"),
        (Listen(host="::1", port=1), "http://[::1]:1"),
        (Listen(host="[::1]", port=1), "http://[::1]:1"),
        (Listen(host="0.0.0.0"), "http://localhost:8787"),
        (Listen(host="::"), "http://localhost:8787"),
        (Listen(public_url="https://c.example/p/"), "https://c.example/p"),
    ],
)
def test_public_base(listen: Listen, base: str) -> None:
    assert Settings(listen=listen).public_base == base


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("box", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert Listen(host=host).loopback is loopback


def test_rules_hold_for_settings_made_by_hand_too_and_secrets_stay_hidden() -> None:
    upstream = Upstream(
        base_url="https://x", formats=("gemini",), api_key=SecretStr("hunter2"), headers={"a": "hunter2"}
    )
    with pytest.raises(ValidationError, match="anybody who can connect") as caught:
        Settings(listen=Listen(host="0.0.0.0"), upstreams={"x": upstream}, policies=(Policy(),))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(upstream)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:8787",
        "http://127.0.0.1:8788",
        "http://127.0.0.1",
        "http://[::1]:8787",
        "http://127.0.0.2:8787",
        "http://x:8787",
    ],
)
def test_another_server_on_this_machine_may_be_an_upstream(url: str) -> None:
    settings = Settings(upstreams={"a": {"base_url": url, "formats": ["gemini"]}})
    assert settings.upstreams["a"].base_url == url
