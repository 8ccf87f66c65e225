"""Real-looking conversations of each format, with everything in them that agents really send: the material that is then spoiled.

Every seed is accepted by the strict provider as it is (a test sees to that).
"""

from __future__ import annotations

from typing import Any

from tests.edge.talks import Talk

JSON = dict[str, Any]
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LINES = "".join(
    f"{number:>4}  value_{number} = compute({number * 7919 % 1009}, mode='fast')  # naïve, see §{number}\n"
    for number in range(18)
)


def seeds(form: str) -> list[JSON]:
    """Bodies of a few to a few dozen items, 2 to 20 kilobytes each."""
    return [
        *_plain(form),
        *{"openai-chat": _chat, "openai-responses": _responses, "anthropic-messages": _messages, "gemini": _gemini}[
            form
        ](),
    ]


def _plain(form: str) -> list[JSON]:
    """What all formats have: questions, answers, tool loops; ending with a question and with results."""
    talk = Talk(form)
    for number in range(6):
        talk.ask(f"Question {number}: what about order ORD-{number * 3571}? " + "It matters. " * 12).say(
            "It was shipped. " * 20
        )
    questions = talk.ask("And the last one?").body
    loop = Talk(form).ask("Read the sources and fix the bug.").rounds(9, LINES).body
    mixed = (
        Talk(form)
        .ask("First task.")
        .rounds(3, LINES)
        .say("Done with it. " * 10)
        .ask("Second task.")
        .rounds(4, LINES, first=3)
    )
    answered = Talk(form).ask("Look.").rounds(5, LINES).say("Found it. " * 8).ask("Thanks. Now explain it.").body
    return [questions, loop, mixed.body, answered]


def _chat() -> list[JSON]:
    def call(ident: str, name: str = "read", arguments: str = '{"path": "a.py"}', kind: str = "function") -> JSON:
        inner = {"name": name, "input" if kind == "custom" else "arguments": arguments}
        return {"id": ident, "type": kind, kind: inner}

    rich: list[JSON] = [
        {"role": "system", "content": "You are an agent. " * 5},
        {"role": "developer", "content": [{"type": "text", "text": "Use tools."}]},
        {"role": "user", "name": "ann", "content": [
            {"type": "text", "text": "What is on it?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}", "detail": "low"}},
        ]},
        {"role": "assistant", "content": None, "reasoning_content": "Let me look. " * 5, "tool_calls": [call("c1"), call("c2", "grep")]},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": LINES}]},
        {"role": "tool", "tool_call_id": "c1", "content": LINES},
        {"role": "assistant", "content": "A cat.", "refusal": None, "annotations": []},
        {"role": "user", "content": [
            {"type": "input_audio", "input_audio": {"data": PICTURE, "format": "wav"}}, {"type": "text", "text": "?"},
        ]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I can't."}]},
        {"role": "user", "content": "Patch it then."},
        {"role": "assistant", "content": "", "tool_calls": [call("c3", "patch", "*** Begin Patch\n" * 20, "custom")]},
        {"role": "tool", "tool_call_id": "c3", "content": "ok " * 300},
        {"role": "assistant", "content": "Patched."},
        {"role": "system", "content": "The date is 2026-11-30."},
        {"role": "user", "content": "Again, with care: 1e2, \u00e4\u20ac\U0001f600 \\ud83d."},
    ]  # fmt: skip
    legacy: list[JSON] = [{"role": "user", "content": "Old style. " * 20}]
    for number in range(5):
        legacy.append(
            {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": f'{{"n": {number}}}'}}
        )
        legacy.append({"role": "function", "name": "read", "content": LINES})
    return [
        {
            "model": "gpt-4o",
            "messages": rich,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 1e-1,
            "n": 1,
        },
        {
            "model": "gpt-4o",
            "messages": legacy,
            "functions": [{"name": "read", "parameters": {"type": "object", "properties": {}}}],
        },
    ]


def _messages() -> list[JSON]:
    mark = {"cache_control": {"type": "ephemeral"}}
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "grep")]
    tools += [{"type": "web_search_20250305", "name": "web_search"}]

    def use(ident: str, name: str = "read") -> JSON:
        return {"type": "tool_use", "id": ident, "name": name, "input": {"path": "a.py", "n": 1e2}}

    def result(ident: str, content: Any = LINES, **more: Any) -> JSON:
        return {"type": "tool_result", "tool_use_id": ident, "content": content, **more}

    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": LINES}}
    text = {"type": "text", "text": "See the document. " * 10}
    rich: list[JSON] = [
        {"role": "user", "content": [text, document, picture]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use("toolu_1"), use("toolu_2", "grep")]},
        {"role": "user", "content": [result("toolu_1"), result("toolu_2", [{"type": "text", "text": LINES}, picture])]},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "cats"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "text", "text": "Cats. " * 30},
        ]},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": [use("toolu_3")]},
        {"role": "user", "content": [result("toolu_3"), {"type": "text", "text": "And be quick."}]},
        {"role": "assistant", "content": "Done. " * 40},
        {"role": "user", "content": [{"type": "text", "text": "Thanks; now the second part. " * 5, **mark}]},
        {"role": "assistant", "content": [use("toolu_4")]},
        {"role": "user", "content": [result("toolu_4", is_error=True, **mark)]},
    ]  # fmt: skip
    thinking: list[JSON] = [{"role": "user", "content": "Think. " * 20}]
    for number in range(6):
        seen = {"type": "thinking", "thinking": "Hm. " * 30, "signature": f"sig{number}" * 20}
        hidden = [{"type": "redacted_thinking", "data": "ENC" * 40}] if number == 2 else []
        thinking.append({"role": "assistant", "content": [seen, *hidden, use(f"toolu_{number}")]})
        thinking.append({"role": "user", "content": [result(f"toolu_{number}")]})
    head = {"model": "claude-sonnet-4-5", "max_tokens": 4096, "tools": tools}
    system = [{"type": "text", "text": "You are an agent. " * 10, **mark}]
    return [
        {**head, "messages": rich, "system": system, "metadata": {"user_id": "user_1"}, "stream": True},
        {**head, "messages": thinking, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    ]


def _responses() -> list[JSON]:
    def said(words: str, ident: str) -> JSON:
        content = [{"type": "output_text", "text": words, "annotations": []}]
        return {"type": "message", "role": "assistant", "id": ident, "status": "completed", "content": content}

    def reasoning(number: int) -> JSON:
        return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAA" * 30}

    rich: list[JSON] = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Use tools. " * 5}]},
        {"role": "user", "content": [
            {"type": "input_text", "text": "What is on it?"}, {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
        ]},
        reasoning(1),
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": '{"n": 1}', "status": "completed"},
        {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": LINES},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": LINES}]},
        reasoning(2),
        said("A cat. " * 30, "msg_1"),
        {"role": "user", "content": "Go on then. " * 10},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_3", "name": "apply", "input": "*** Begin Patch\n" * 20},
        {"type": "custom_tool_call_output", "call_id": "call_3", "output": "ok " * 200},
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_4", "status": "completed", "action": {
            "type": "exec", "command": ["ls", "-l"], "env": {}}},
        {"type": "local_shell_call_output", "call_id": "call_4", "output": LINES},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}},
        said("Found. " * 40, "msg_2"),
        {"role": "user", "content": [{"type": "input_text", "text": "And the last part."}]},
    ]  # fmt: skip
    loop: list[JSON] = [{"role": "user", "content": "Read all of it. " * 10}]
    for number in range(7):
        loop += [
            reasoning(number),
            {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": f"call_{number}",
                "name": "read",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": f"call_{number}", "output": LINES},
        ]
    tools = [
        {"type": "function", "name": "read", "parameters": {"type": "object"}},
        {"type": "custom", "name": "apply"},
    ]
    head = {"model": "gpt-5", "instructions": "You are an agent. " * 5, "tools": tools, "store": False}
    include = ["reasoning.encrypted_content"]
    return [
        {**head, "input": rich, "stream": True, "prompt_cache_key": "k1", "include": include},
        {**head, "input": loop, "reasoning": {"effort": "high"}, "include": include},
    ]


def _gemini() -> list[JSON]:
    def call(name: str, **more: Any) -> JSON:
        return {"functionCall": {"name": name, "args": {"path": "a.py", "n": 1e2}}, **more}

    def response(name: str, output: Any = LINES) -> JSON:
        return {"functionResponse": {"name": name, "response": {"output": output}}}

    rich: list[JSON] = [
        {"role": "user", "parts": [{"text": "What is on it?"}, {"inlineData": {"mimeType": "image/png", "data": PICTURE}}]},
        {"role": "model", "parts": [
            {"text": "Let me see. " * 10, "thought": True}, call("read", thoughtSignature="c2ln" * 20), call("read"),
        ]},
        {"role": "user", "parts": [response("read"), response("read", {"lines": [LINES, 7, None]})]},
        {"role": "model", "parts": [{"text": "A cat. " * 30}]},
        {"role": "user", "parts": [{"text": "Compute it. " * 10}]},
        {"role": "model", "parts": [
            {"executableCode": {"language": "PYTHON", "code": "print(1)\n" * 20}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n" * 50}}, {"text": "One. " * 20},
        ]},
        {"role": "user", "parts": [{"text": "And now?"}]},
        {"role": "model", "parts": [call("grep", thoughtSignature="c2ln" * 20)]},
        {"role": "user", "parts": [response("grep")]},
    ]  # fmt: skip
    loop: list[JSON] = [{"role": "user", "parts": [{"text": "Read all of it. " * 10}]}]
    for number in range(6):
        loop += [
            {"role": "model", "parts": [{"function_call": {"name": "read", "args": {"n": number}}}]},
            {"role": "user", "parts": [{"function_response": {"name": "read", "response": {"output": LINES}}}]},
        ]
    tools = [{"functionDeclarations": [{"name": "read"}, {"name": "grep"}]}]
    return [
        {"contents": rich, "systemInstruction": {"parts": [{"text": "You are an agent. " * 5}]}, "tools": tools},
        {"contents": loop, "generationConfig": {"temperature": 0}},
    ]
