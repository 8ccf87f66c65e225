"""What the Gemini API refuses in the contents of a `generateContent` request.

Contents alternate between a user and the model; a content full of calls is answered by the content right after it, part
for part. From Gemini 3 on the calls of the current turn carry thought signatures. Keys come in camelCase or snake_case, so
each part is first reduced to what it is. Quirks: `alternating_roles` (older models), `thought_signatures` (check them
whatever the model is called).
source: https://ai.google.dev/gemini-api/docs/thought-signatures, google-gemini/gemini-cli#11814, #3814, #16543
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from .violation import JSON, NO_QUIRKS, Found, Violation, dicts, gemini_version

_KINDS = {
    "text": "text",
    "functionCall": "call",
    "function_call": "call",
    "functionResponse": "response",
    "function_response": "response",
    "inlineData": "media",
    "inline_data": "media",
    "fileData": "media",
    "file_data": "media",
    "executableCode": "code",
    "executable_code": "code",
    "codeExecutionResult": "code_result",
    "code_execution_result": "code_result",
    "toolCall": "tool_call",
    "tool_call": "tool_call",
    "toolResponse": "tool_response",
    "tool_response": "tool_response",
}
_BESIDES = frozenset(
    {
        "thought",
        "thoughtSignature",
        "thought_signature",
        "videoMetadata",
        "video_metadata",
        "mediaResolution",
        "media_resolution",
        "partMetadata",
        "part_metadata",
    }
)
_BY_MODEL = frozenset({"code", "code_result", "tool_call", "tool_response"})


def violations(body: JSON, *, model: str = "", quirks: frozenset[str] = NO_QUIRKS) -> list[Violation]:
    """What the provider would refuse in a Gemini body. `model` is the one in the URL; without it G11 keeps silent."""
    found = Found()
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        found.add("G20", "contents", "* GenerateContentRequest.contents: contents is not specified")
        return found
    cached = bool(_get(body, "cachedContent", "cached_content"))
    _fields(body, cached, found)
    kinds = [_parts(i, content, found) for i, content in enumerate(contents)]
    _turns(contents, kinds, cached, found)
    _pairs_by_model(contents, kinds, found)
    version = gemini_version(model)
    if (version is not None and version >= (3, 0)) or "thought_signatures" in quirks:
        _signatures(contents, kinds, found)
    if "alternating_roles" in quirks:
        for i in range(1, len(contents)):
            if _is_model(contents[i]) == _is_model(contents[i - 1]):
                found.add(
                    "G7", f"contents[{i}]", "Please ensure that multiturn requests alternate between user and model."
                )
    return found


def _get(value: JSON, camel: str, snake: str) -> Any:
    return value[camel] if camel in value else value.get(snake)


def _is_model(content: JSON) -> bool:
    return content.get("role") == "model"


def _parts(i: int, content: JSON, found: Found) -> list[str]:
    """G1, G18, G19. Returns what each part is; `""` for a kind that is not known."""
    if content.get("role") not in ("user", "model", "function", None):
        found.add("G1", f"contents[{i}].role", "Please use a valid role: user, model.")
    parts = content.get("parts")
    if not isinstance(parts, list) or not parts:
        where = f"contents[{i}].parts"
        found.add("G19", where, f"* GenerateContentRequest.{where}: contents.parts must not be empty.")
        return []
    return [_part(part) or _odd_part(f"contents[{i}].parts[{j}]", part, found) for j, part in enumerate(parts)]


def _part(part: JSON) -> str:
    """What a part is, if it holds exactly one thing that is known and not empty."""
    kind = ""
    for key, value in part.items():
        one = _KINDS.get(key)
        if one is None:
            continue
        # A signature may arrive in a part whose text is empty, and comes back so.
        if kind or (value == "" and not _get(part, "thoughtSignature", "thought_signature")):
            return ""
        kind = one
    return kind


def _odd_part(where: str, part: JSON, found: Found) -> str:
    data = [key for key in part if key in _KINDS]
    if len(data) > 1:
        found.add("G18", where, f"* {where}.data: oneof field 'data' is already set.")
        return _KINDS[data[0]]
    if not data and any(key not in _BESIDES for key in part):
        return ""
    found.add("G18", where, f"* {where}.data: required oneof field 'data' must have one initialized field")
    return "text"


def _turns(contents: list[JSON], kinds: list[list[str]], cached: bool, found: Found) -> None:
    """G2 to G4, G6, G9, G10: what stands after what. With `cachedContent` the first content may answer calls kept there."""
    last = len(contents) - 1
    calls: list[JSON] = []
    for i, content in enumerate(contents):
        responses = _values(content, kinds[i], "response")
        if len(responses) > len(calls) > 0:
            responses = _without_twins(responses)
        if calls and len(responses) != len(calls):
            found.add(
                "G3",
                f"contents[{i}]",
                "Please ensure that the number of function response parts is equal to the number of function call parts "
                "of the function call turn.",
            )
        elif calls:
            _answers(i, calls, responses, found)
        elif responses and not (cached and i == 0):
            found.add(
                "G4",
                f"contents[{i}]",
                "Please ensure that function response turn comes immediately after a function call turn.",
            )
        for response in responses:
            if not isinstance(response.get("response"), dict):
                found.add("G9", f"contents[{i}]", "functionResponse.response: Expected an object")
        calls = _values(content, kinds[i], "call") if _is_model(content) else []
        for call in calls:
            if not isinstance(call.get("args"), dict | None):
                found.add("G10", f"contents[{i}]", "functionCall.args: Expected an object")
        if calls and (_is_model(contents[i - 1]) if i else not cached):
            found.add(
                "G2",
                f"contents[{i}]",
                "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
            )
    if _is_model(contents[last]):
        found.add(
            "G6", f"contents[{last}]", "Please ensure that the last turn is a user turn or a function response turn."
        )


def _values(content: JSON, kinds: list[str], kind: str) -> list[JSON]:
    if kind not in kinds:
        return []
    camel, snake = ("functionCall", "function_call") if kind == "call" else ("functionResponse", "function_response")
    return [_get(part, camel, snake) for part, one in zip(content["parts"], kinds, strict=True) if one == kind]


def _without_twins(responses: list[JSON]) -> list[JSON]:
    """Gemini CLI (0.61) sends a response of an earlier turn twice, id and all: such twins count once."""
    once: list[JSON] = []
    ids: dict[Any, JSON] = {}
    for response in responses:
        call_id = response.get("id")
        if call_id is None or ids.get(call_id) != response:
            once.append(response)
            ids[call_id] = response
    return once


def _answers(i: int, calls: list[JSON], responses: list[JSON], found: Found) -> None:
    """G9: each response names its call, and repeats its id if there is one."""
    if len(calls) == 1 and (calls[0].get("id"), calls[0].get("name")) == (
        responses[0].get("id"),
        responses[0].get("name"),
    ):
        return
    asked = Counter((call.get("id"), call.get("name")) for call in calls)
    given = Counter((response.get("id"), response.get("name")) for response in responses)
    for call_id, name in asked - given:
        if call_id is not None or not any(name == other for _, other in given):
            found.add("G9", f"contents[{i}]", f"no functionResponse for functionCall '{name}' with id {call_id}")


def _pairs_by_model(contents: list[JSON], kinds: list[list[str]], found: Found) -> None:
    """G25, G26: code with its result, a server tool's call with its response."""
    codes: list[int] = []
    tool_calls: set[Any] = set()
    for i, content in enumerate(contents):
        if _BY_MODEL.isdisjoint(kinds[i]):
            continue
        for part, kind in zip(content["parts"], kinds[i], strict=True):
            if kind == "code":
                codes.append(i)
            elif kind == "code_result":
                if codes:
                    codes.pop()
                else:
                    found.add("G25", f"contents[{i}]", "codeExecutionResult without executableCode")
            elif kind == "tool_call":
                tool_calls.add(_get(part, "toolCall", "tool_call").get("id"))
            elif kind == "tool_response" and _get(part, "toolResponse", "tool_response").get("id") not in tool_calls:
                found.add("G26", f"contents[{i}]", "toolResponse without its toolCall")
    for i in codes:
        found.add("G25", f"contents[{i}]", "executableCode without codeExecutionResult")


def _signatures(contents: list[JSON], kinds: list[list[str]], found: Found) -> None:
    """G11, G12: in the current turn the first call of every step carries its signature."""
    start = -1
    for i in range(len(contents) - 1, -1, -1):
        if not _is_model(contents[i]) and any(kind != "response" for kind in kinds[i]):
            start = i
            break
    for i in range(start + 1, len(contents)):
        if not _is_model(contents[i]) or "call" not in kinds[i]:
            continue
        j = kinds[i].index("call")
        part = contents[i]["parts"][j]
        if not _get(part, "thoughtSignature", "thought_signature"):
            name = _get(part, "functionCall", "function_call").get("name")
            found.add(
                "G11",
                f"contents[{i}].parts[{j}]",
                f"Function call is missing a thought_signature in functionCall parts. Function call `{name}`, position {j}.",
            )


def _fields(body: JSON, cached: bool, found: Found) -> None:
    """G18 and G23 for `systemInstruction`, G21, G29."""
    system = _get(body, "systemInstruction", "system_instruction")
    tools = body.get("tools")
    config = _get(body, "toolConfig", "tool_config")
    if cached and (system or tools or config):
        found.add(
            "G21",
            "cachedContent",
            "CachedContent can not be used with GenerateContent request setting system_instruction, tools or tool_config.",
        )
    if isinstance(system, dict):
        for j, part in enumerate(dicts(system.get("parts"))):
            where = f"systemInstruction.parts[{j}]"
            if (_part(part) or _odd_part(where, part, found)) != "text":
                found.add("G23", where, "systemInstruction: only text parts are supported")
    if not isinstance(config, dict):
        return
    calling = _get(config, "functionCallingConfig", "function_calling_config")
    allowed = _get(calling, "allowedFunctionNames", "allowed_function_names") if isinstance(calling, dict) else None
    declared = {
        declaration.get("name")
        for tool in dicts(tools)
        for declaration in dicts(_get(tool, "functionDeclarations", "function_declarations"))
    }
    for name in allowed or ():
        if name not in declared:
            found.add("G29", "toolConfig", f"allowed_function_names: `{name}` is not a declared function")
