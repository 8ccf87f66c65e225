"""Every kind of fault: where it is, which key, what to do; all at once, and never a value."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from app.errors import ConfigInvalid
from app.settings import load

from .conftest import Faults, Load

_OPEN = "listen: {host: 0.0.0.0}\n"

# YAML in one piece, and the one fault that it has, behind "compactd.yaml:"
ONE_FAULT = [
    # keys
    ("listen:\n  prt: 1", "2: listen.prt: unknown key; did you mean port?"),
    ("polices: []", "1: polices: unknown key; did you mean policies?"),
    ("polices:", "1: polices: unknown key; did you mean policies?"),
    ("strategy: combined", "1: strategy: unknown key; did you mean policies[].strategy?"),
    ("log: {zzz: 1}", "1: log.zzz: unknown key; remove it, or use one of level, format"),
    ("_env_file: x", "1: _env_file: unknown key; remove it, or use one of listen, admin,"),
    (
        "policies:\n  - name: a\n    trigger_treshold: 0.8",
        "3: policies[0].trigger_treshold: unknown key; did you mean trigger_threshold?",
    ),
    (
        "listen:\n  port: 1\n  host: x\n  port: 1",
        "4: listen.port: this key stands here twice, first at line 2; remove one of them",
    ),
    ("listen: {}\nlog: {}\nlisten: {}", "3: listen: this key stands here twice, first at line 1"),
    (
        "upstreams:\n  a: {formats: [gemini]}",
        "2: upstreams.a.base_url: is missing; add it, it must be an http or https address",
    ),
    ("? [a]\n: b", "1: a key must be a plain word"),
    # values
    ("listen: {port: true}", "1: listen.port: must be a number, not true or false"),
    ("listen: {port: 70000}", "1: listen.port: must be a port number, 1 to 65535"),
    ("listen: {host: http://x}", "1: listen.host: must be a host name or an IP address"),
    ("listen: {workers: 0}", "1: listen.workers: must be a whole number, 1 or more"),
    ("listen: {public_url: example.com}", "1: listen.public_url: must be an address like https://host"),
    ("listen: []", "1: listen: must be a mapping of keys to values"),
    ("admin: {protect_metrics: maybe}", "1: admin.protect_metrics: must be true or false"),
    ("admin: {token: 12}", "1: admin.token: must be secret text or null; put the value in quotes"),
    ("admin: {token: ''}", "1: admin.token: is empty; leave the key out or write null for none"),
    ("auth:\n  keys:\n    - ok\n    - not ok", "4: auth.keys[1]: must be one word of visible ASCII characters"),
    ("auth: {keys: word}", "1: auth.keys: must be a list, each entry secret text"),
    ("store: {timeout: 0}", "1: store.timeout: must be a number of seconds above 0"),
    ("store: {encryption_key: k!}", "1: store.encryption_key: has a key, number 1, that is no base64"),
    ("store: {url: mysql://x}", "1: store.url: must be memory://, sqlite:///file.db, redis://host:port/db"),
    ("store: {url: 'sqlite://data.db'}", "1: store.url: must be memory://"),
    ("store: {url: 'redis+sentinel://h:1,h:2'}", "1: store.url: must be memory://"),
    (
        "archive: {url: /directory}",
        "1: archive.url: must be file:///directory, s3://bucket/prefix or package.module:callable",
    ),
    ("archive: {access: lnk}", "1: archive.access: must be link or admin; did you mean link?"),
    (
        "models: {'x*': {encoding: o200k}}",
        '1: models["x*"].encoding: must be o200k_base or cl100k_base or null; did you mean o200k_base?',
    ),
    ("models: {x: {context_window: 0}}", "1: models.x.context_window: must be a whole number, 1 or more or null"),
    (
        "auth: {keys: [k], clients: {ann: {key: k}}}",
        "1: auth.clients.ann.key: this key is that of auth.keys too; give each client its own",
    ),
    ("auth: {clients: {ann: {key: k}, bob: {key: k}}}", "1: auth.clients.bob.key: this key is that of ann too"),
    ("auth: {clients: {ann: {key: k, policy: defalt}}}", "1: auth.clients.ann.policy: no policy has this name; did you mean default?"),
    ("auth: {clients: {ann: {key: k, upstreams: [opena]}}}",
     "1: auth.clients.ann.upstreams[0]: no upstream has this name; did you mean openai?"),
    ("auth: {clients: {ann: {}}}", "1: auth.clients.ann.key: is missing; add it, it must be secret text"),
    # upstreams
    (
        "upstreams: {a b: {base_url: https://x, formats: [gemini]}}",
        '1: upstreams["a b"]: the name must consist of letters, digits',
    ),
    (
        "upstreams: {v1: {base_url: https://x, formats: [gemini]}}",
        "1: upstreams.v1: this name is the beginning of a path of ours",
    ),
    (
        "upstreams: {a: {base_url: 'http://localhost:8787/openai', formats: [gemini]}}",
        "1: upstreams.a.base_url: is compactd's own address (`listen`); write the provider's",
    ),
    (
        "{listen: {host: 0.0.0.0, port: 80}, upstreams: {a: {base_url: 'http://127.0.0.1', formats: [gemini]}}}",
        "1: upstreams.a.base_url: is compactd's own address (`listen`); write the provider's",
    ),
    (
        "{listen: {host: Gate.example}, upstreams: {a: {base_url: 'http://gate.EXAMPLE:8787', formats: [gemini]}}}",
        "1: upstreams.a.base_url: is compactd's own address (`listen`); write the provider's",
    ),
    (
        "upstreams: {a: {base_url: https://x/v1/, formats: [gemini]}}",
        "1: upstreams.a.base_url: must be what comes before /v1; leave /v1 out",
    ),
    (
        "upstreams: {a: {base_url: 'https://x/v1/chat/completions', formats: [openai-chat]}}",
        "1: upstreams.a.base_url: must be what comes before /v1/chat/completions; leave /v1/chat/completions out",
    ),
    (
        "upstreams: {a: {base_url: 'https://x/api/v4/chat/completions', formats: [openai-chat]}}",
        "1: upstreams.a.base_url: must be what comes before /chat/completions; leave /chat/completions out",
    ),
    (
        "upstreams: {a: {base_url: 'https://x?a=b', formats: [gemini]}}",
        "1: upstreams.a.base_url: must not carry a query",
    ),
    (
        "upstreams: {a: {base_url: 'https://u:p@x', formats: [gemini]}}",
        "1: upstreams.a.base_url: must not carry a login",
    ),
    (
        "upstreams: {a: {base_url: 'https://x:y', formats: [gemini]}}",
        "1: upstreams.a.base_url: must be an address like https://host",
    ),
    ("upstreams: {a: {base_url: https://x, formats: []}}", "1: upstreams.a.formats: must not be empty"),
    (
        "upstreams: {a: {base_url: https://x, formats: [gemini, gemini]}}",
        "1: upstreams.a.formats: must not name anything twice",
    ),
    (
        "upstreams: {a: {base_url: https://x, formats: [gemni]}}",
        "1: upstreams.a.formats[0]: must be openai-chat, openai-responses, anthropic-messages or "
        "gemini; did you mean gemini?",
    ),
    (
        "upstreams: {a: {base_url: https://x, formats: [gemini], headers: {'x y': z}}}",
        "1: upstreams.a.headers: has a name that is no HTTP header name",
    ),
    (
        'upstreams: {a: {base_url: https://x, formats: [gemini], headers: {x: "a\\nb"}}}',
        "1: upstreams.a.headers: has a value with a line break",
    ),
    # policies
    (
        "policies: [{trigger_threshold: 0.0}]",
        "1: policies[0].trigger_threshold: must be tokens (a whole number) or a share of the window",
    ),
    ("policies: [{trigger_threshold: 0}]", "1: policies[0].trigger_threshold: must be tokens"),
    ("policies: [{trigger_threshold: 1.5}]", "1: policies[0].trigger_threshold: must be tokens"),
    ("policies: [{trigger_threshold: true}]", "1: policies[0].trigger_threshold: must be tokens"),
    ("policies: [{clear_at_least: -1}]", "1: policies[0].clear_at_least: must be tokens"),
    ("policies: [{target_threshold: null}]", "1: policies[0].target_threshold: must be tokens"),
    (
        "policies:\n  - trigger_threshold: 0.5\n    target_threshold: 0.6",
        "3: policies[0].target_threshold: 0.6 lies above trigger_threshold (0.5); set it to 0.5 or less",
    ),
    (
        "policies:\n  - name: a\n    trigger_threshold: 0.3",
        "2: policies[0].target_threshold: 0.5 lies above trigger_threshold (0.3)",
    ),
    (
        "policies: [{trigger_threshold: 100, target_threshold: 101}]",
        "1: policies[0].target_threshold: 101 lies above trigger_threshold (100)",
    ),
    (
        "policies: [{prepare_threshold: 0.9}]",
        "1: policies[0].prepare_threshold: 0.9 lies above trigger_threshold (0.8)",
    ),
    ("policies: [{idle_threshold: 0.9}]", "1: policies[0].idle_threshold: 0.9 lies above trigger_threshold (0.8)"),
    ("policies: [{keep_recent_messages: 0}]", "1: policies[0].keep_recent_messages: must be a whole number, 1 or more"),
    (
        "policies: [{keep_recent_turns: 0}]",
        "1: policies[0].keep_recent_turns: must be a whole number, 1 or more or null",
    ),
    ("policies: [{combined_order: []}]", "1: policies[0].combined_order: must not be empty"),
    (
        "policies: [{combined_order: [summarize, summarize]}]",
        "1: policies[0].combined_order: must not name anything twice",
    ),
    (
        "policies: [{combined_order: [combined]}]",
        "1: policies[0].combined_order[0]: must be tool_result_clearing, sliding_window or summarize",
    ),
    (
        "policies: [{strategy: sumarize}]",
        "1: policies[0].strategy: must be summarize, sliding_window, tool_result_clearing, combined or "
        "package.module:callable; did you mean summarize?",
    ),
    ("policies: [{strategy: 'a-b:c'}]", "1: policies[0].strategy: must be summarize"),
    ("policies: [{mode: true}]", "1: policies[0].mode: must be on, observe or off"),
    (
        "policies: [{summary_prompt_file: none.md}]",
        "1: policies[0].summary_prompt_file: there is no such file; check the path",
    ),
    ("policies: [{summary_prompt_file: .}]", "1: policies[0].summary_prompt_file: the file can't be read"),
    (
        "policies: [{summary_prompt_file: compactd.yaml, summary_model: ''}]",
        "1: policies[0].summary_model: must be text that is not empty",
    ),
    ("policies: [{name: 'a b'}]", "1: policies[0].name: must consist of letters"),
    (
        "policies:\n  - name: a\n  - name: b\n  - name: a",
        "4: policies[2].name: policies[0] has this name already; give each policy its own",
    ),
    (
        "policies:\n  - match: {upstreams: [opnai]}",
        "2: policies[0].match.upstreams[0]: no upstream has this name; did you mean openai?",
    ),
    (
        "policies: [{match: {upstreams: [x]}}]",
        "1: policies[0].match.upstreams[0]: no upstream has this name; there are openai, anthropic, gemini",
    ),
    ("policies: [{summary_model: 'openai:'}]", "1: policies[0].summary_model: names no model; write openai:model"),
    (
        "policies: [{summary_model: 'openai:m', match: {upstreams: [gemini]}}]",
        "1: policies[0].summary_model: no credentials for it: openai has no api_key",
    ),
    (
        "policies: [{summary_model: 'openai:m', match: {formats: [gemini]}}]",
        "1: policies[0].summary_model: no credentials for it: openai has no api_key",
    ),
    # what belongs together
    (
        _OPEN + "upstreams:\n  a: {base_url: https://x, formats: [gemini], api_key: k}",
        "3: upstreams.a.api_key: anybody who can connect could spend this key",
    ),
    (
        _OPEN + "upstreams:\n  a: {base_url: https://x, formats: [gemini], headers: {X-Api-Key: k}}",
        "3: upstreams.a.headers: anybody who can connect",
    ),
    # substitution
    (
        "admin:\n  token: ${NOT_SET}",
        "2: admin.token: environment variable NOT_SET is not set; set it, or write ${NOT_SET:-default}",
    ),
    (
        "upstreams:\n  a:\n    base_url: ${NOT_SET}\n    formats: [gemini]",
        "3: upstreams.a.base_url: environment variable NOT_SET is not set",
    ),
    ("admin: {token: '${1x}'}", "1: admin.token: has a ${ that begins no ${NAME}"),
    ("admin:\n  token: ${NO_END", "2: admin.token: has a ${ that begins no ${NAME}"),
    # the file
    ("", "1: the file is empty; write `{}` for the defaults"),
    (" \n\n", "1: the file is empty"),
    ("- listen", "1: the file must be a mapping of sections"),
    ("listen", "1: the file must be a mapping of sections"),
    ("listen: {}\n---\nlog: {}", "2: is no YAML: but found another document"),
    ("listen:\n  host: [a", "2: is no YAML: expected ',' or ']', but got '<stream end>'"),
    ("listen:\n\tport: 1", "2: is no YAML: found character '\\t' that cannot start any token"),
    (
        "log: {}\nadmin: {token: ${X}}",
        '2: is no YAML: expected \',\' or \'}\', but got \'{\'; check spaces, quotes and brackets from '
        'here upwards; inside { } and [ ] write "${NAME}" in quotes',
    ),
    ("log: {}\nadmin: {token: \x07}", "2: is no YAML: character U+0007 is not allowed; remove it"),
    ("admin: {token: !secret x}", "1: admin.token: has a YAML tag (`!…`), which means nothing here"),
    ("models: &m {x: *m}", "1: models.x: contains itself"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "fault"), ONE_FAULT, ids=[fault for _, fault in ONE_FAULT])
def test_one_fault(faults: Faults, text: str, fault: str) -> None:
    (found,) = faults(text)
    assert found.startswith(f"compactd.yaml:{fault}")


@pytest.mark.parametrize(
    "text",
    [
        "policies: [{trigger_threshold: 100}]",  # nothing to compare with a share
        "policies: [{trigger_threshold: 0.5}]",
        "policies: [{strategy: 'my.package:compact'}]",
        "policies: [{summary_model: 'llama3:8b'}]",  # no upstream of that name: a model's name
        "policies: [{summary_model: extractive}]",
        "policies: [{summary_model: 'openai:m'}]",  # fits requests that go to openai anyway
        "policies: [{summary_model: 'openai:m', match: {upstreams: [gemini, openai]}}]",
        "upstreams: {a: {base_url: https://x, formats: [gemini], api_key: k}}",  # only this machine can connect
        "listen: {host: localhost}\nupstreams: {a: {base_url: https://x, formats: [gemini], api_key: k}}",
        "listen: {host: '::1'}\nupstreams: {a: {base_url: https://x, formats: [gemini], api_key: k}}",
        _OPEN + "auth: {keys: [c]}\nupstreams: {a: {base_url: https://x, formats: [gemini], api_key: k}}",
        """{upstreams: {a: {base_url: https://x, formats: [gemini], api_key: k}, b: {base_url: https://y, formats: [gemini]}},
            policies: [{summary_model: 'a:m', match: {upstreams: [b]}}]}""",
        "store: {url: 'redis+sentinel://:pw@h:1,h:2/main/0'}",
        "archive: {url: 's3://bucket'}",
        "policies: []",
    ],
)
def test_no_fault(loaded: Load, text: str) -> None:
    assert loaded(text)


def test_all_at_once_in_the_order_of_the_file(faults: Faults) -> None:
    found = faults(
        """\
        listen: {host: 0.0.0.0, prot: 1}
        store: {url: "${NOT_SET}", timeout: soon}
        policies:
          - name: a
            strategy: sumarize
            trigger_threshold: 0.4
          - name: b
            name: c
        unknown: 1
        """,
        {"COMPACTD_LOG__LEVEL": "loud", "COMPACTD_STORE_URL": "memory://"},
        {"listen.port": "x"},
    )
    assert [fault.split(": ")[:2] for fault in found] == [
        ["compactd.yaml:1", "listen.prot"],
        ["compactd.yaml:2", "store.url"],
        ["compactd.yaml:2", "store.timeout"],
        ["compactd.yaml:4", "policies[0].target_threshold"],
        ["compactd.yaml:5", "policies[0].strategy"],
        ["compactd.yaml:8", "policies[1].name"],
        ["compactd.yaml:9", "unknown"],
        ["COMPACTD_STORE_URL", "sets no option; did you mean COMPACTD_STORE__URL?"],
        ["command line", "listen.port"],
        ["COMPACTD_LOG__LEVEL", "log.level"],
    ]


def test_rules_between_sound_sections_are_told_along_with_other_faults(faults: Faults) -> None:
    found = faults("log: {level: loud}\npolicies: [{name: a}, {name: a}]")
    assert [fault.split(": ")[1] for fault in found] == ["log.level", "policies[1].name"]


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("COMPACTD_LISTEN__PORT", "many", "listen.port: must be a port number"),
        ("COMPACTD_LISTEN__PRT", "1", "listen.prt: unknown key; did you mean port?"),
        ("COMPACTD_LISTEN_PORT", "1", "sets no option; did you mean COMPACTD_LISTEN__PORT?"),
        ("COMPACTD_QQ", "1", "sets no option; options are named COMPACTD_SECTION__KEY"),
        ("COMPACTD_AUTH__KEYS", "one", "auth.keys: must be a list"),
        ("COMPACTD_POLICIES", "[", "policies: must be a list"),
        ("COMPACTD_POLICIES", "[{name: 'a b'}]", "policies[0].name: must consist of"),
        ("COMPACTD_POLICIES__2__MODE", "on", "policies: is a list of 1: name an entry by its number, 0 to 1"),
        ("COMPACTD_POLICIES__MODE", "on", "policies: is a list of 1: name an entry by its number"),
        ("COMPACTD_POLICIES__0__TRIGGER_THRESHOLD", "true", "policies[0].trigger_threshold: must be tokens"),
        ("COMPACTD_UPSTREAMS__NEW__READ_TIMEOUT", "5", "upstreams.new.base_url: is missing"),
    ],
)
def test_a_fault_of_the_environment_names_the_variable(faults: Faults, name: str, value: str, fault: str) -> None:
    assert faults("log: {}", {name: value})[0].startswith(f"{name}: {fault}")


def test_a_replaced_list_is_the_variables_fault_not_the_files(faults: Faults) -> None:
    (found,) = faults("policies: [{strategy: combined}]", {"COMPACTD_POLICIES": "[{strategy: sumarize}]"})
    assert found.startswith("COMPACTD_POLICIES: policies[0].strategy: must be summarize")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"log: {level: \xe9}")
    for name, fault in (
        ("none.yaml", "there is no such file"),
        ("", "the file can't be read"),
        ("latin.yaml", "the file is not UTF-8"),
    ):
        path = tmp_path / name if name else tmp_path
        with pytest.raises(ConfigInvalid) as caught:
            load(path, {})
        assert caught.value.faults[0].startswith(f"{path}: {fault}")


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "admin: {token: hunter2 hunter2}",
        "admin: {token: [hunter2]}",
        "auth: {keys: hunter2}",
        "upstreams: {a: {base_url: 'https://hunter2:hunter2@x', formats: [gemini]}}",
        "upstreams: {a: {base_url: 'https://x:hunter2', formats: [hunter2], headers: {x: {hunter2: 1}}}}",
        'upstreams: {a: {base_url: https://x, formats: [gemini], headers: {x: "hunter2\\n"}, api_key: "hunter2\\n"}}',
        "store: {url: 'redis:hunter2', encryption_key: {a: hunter2}}",
        "store: {encryption_key: 'hunter2!'}",
        "policies: [{mode: hunter2, strategy: hunter2, trigger_threshold: hunter2, name: 'hunter2 ', combined_order: [hunter2]}]",
        "policies: [{summary_prompt_file: hunter2, match: {upstreams: [hunter2]}}]",
        "admin: {token: *hunter2}",
        "admin: &hunter2 {token: &hunter2 x}\nlog: {}]",
        "admin: {token: !hunter2 x}",
        "admin: {token: !hunter2!x y}",
        "admin: {token: 'hunter2",
        "admin:\n  token: hunter2\n hunter2",
        "admin: {token: '${S}'}",
    ],
)
def test_values_are_never_told(faults: Faults, loaded: Load, text: str) -> None:
    environ = {"S": "hunter2 hunter2"}
    assert SECRET not in "\n".join(faults(text, environ))
    try:
        loaded(text, environ)
    except ConfigInvalid as error:
        lines = "".join(traceback.format_exception(error)).splitlines()
        assert not [line for line in lines if SECRET in line]


@pytest.mark.parametrize("name", ["ADMIN__TOKEN", "STORE__URL", "AUTH__KEYS", "HUNTER", "POLICIES"])
def test_values_of_variables_are_never_told(faults: Faults, name: str) -> None:
    assert SECRET not in "\n".join(faults("{}", {f"COMPACTD_{name}": "hunter2 hunter2"}))
