"""A fault hides no other one, and brings none along."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.settings.salvage import salvaged
from app.settings.schema import options
from app.settings.sections import Sections

from .conftest import Faults

OPEN = "listen: {host: 0.0.0.0}\n"
KEYED = "upstreams: {a: {base_url: https://x, formats: [gemini], api_key: k}}\n"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("policies: [{strategy: sumarize, match: {upstreams: [nobody]}}]",
         ["policies[0].strategy", "policies[0].match.upstreams[0]"]),
        ("policies: [nonsense, {name: b, match: {upstreams: [nobody]}}]", ["policies[0]", "policies[1].match.upstreams[0]"]),
        ("upstreams: {v1: {formats: [gemini]}}\npolicies: [{match: {upstreams: [nobody]}}]",
         ["upstreams.v1.base_url", "upstreams.v1", "policies[0].match.upstreams[0]"]),
        ("auth: {clients: {ann: {kye: k, policy: nobody, upstreams: [noone, nobody]}}}",
         ["auth.clients.ann.key", "auth.clients.ann.kye", "auth.clients.ann.upstreams[0]", "auth.clients.ann.upstreams[1]",
          "auth.clients.ann.policy"]),
        (OPEN.replace("}", ", port: x}") + KEYED, ["listen.port", "upstreams.a.api_key"]),
        (OPEN + KEYED + "auth: {keys: []}\nadmin: {tokn: x}\nlog: {level: loud}",
         ["upstreams.a.api_key", "admin.tokn", "log.level"]),
        ("policies: [{trigger_threshold: 0.4}, {name: b, target_threshold: 0.9, match: {upstreams: [nobody]}}, "
         "{name: c, summary_model: 'gemini:'}]",
         ["policies[0].target_threshold", "policies[1].target_threshold", "policies[1].match.upstreams[0]", "policies[2].summary_model"]),
    ],
)  # fmt: skip
def test_rules_are_asked_about_what_is_sound_in_a_section_with_faults(
    faults: Faults, text: str, options: list[str]
) -> None:
    assert [fault.split(": ")[1] for fault in faults(text)] == options


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("upstreams:\n  mine: {base_url: nonsense, formats: [gemini]}\npolicies: [{match: {upstreams: [mine]}}]",
         "upstreams.mine.base_url"),
        (OPEN + KEYED + "auth: {keys: ['${NOT_SET}']}", "auth.keys[0]"),
        (OPEN + KEYED + "auth: {kyes: [k]}", "auth.kyes"),
        (OPEN + KEYED + "auht: {keys: [k]}", "auht"),
        ("listen: {host: [127.0.0.1]}\n" + KEYED, "listen.host"),
        ("policies: [{name: a b}, {name: default}]", "policies[0].name"),
        ("policies: [nonsense, {name: default}]", "policies[0]"),
        ("upstreams: {a: {base_url: https://x, formats: [gemni]}}\npolicies: [{match: {formats: [gemini]}, summary_model: 'a:m'}]",
         "upstreams.a.formats[0]"),
        ("upstreams: {a: {base_url: https://x, formats: [gemini], api_kye: k}, b: {base_url: https://y, formats: [gemini]}}\n"
         "policies: [{match: {upstreams: [b]}, summary_model: 'a:m'}]", "upstreams.a.api_kye"),
        ("auth: {clients: {ann: {key: 1}, bob: {key: 2 3}}}", "auth.clients.ann.key auth.clients.bob.key"),
    ],
)  # fmt: skip
def test_what_only_follows_from_another_fault_is_not_told(faults: Faults, text: str, option: str) -> None:
    assert [fault.split(": ")[1] for fault in faults(text)] == option.split()


KEYS = sorted({key for path, _ in options() for key in path} - {"[]", "<name>"})
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["x", "*", "http://x", "gemini", "a b", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, "x"]), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(list(Sections.model_fields)), JUNK, max_size=4),
    st.lists(st.lists(st.sampled_from([*KEYS, "x", 0, 1]), max_size=4).map(tuple), max_size=4),
)
def test_something_sound_is_left_of_anything(data: dict[str, object], faults: list[tuple[str | int, ...]]) -> None:
    sections, _ = salvaged(data, faults)
    assert Sections.model_validate(sections.model_dump(exclude_unset=True)) == sections
