"""Rules of Gemini's `generateContent`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aforesaid.testing.provider_rules.common import Messages, is_blank, names_of_tools, role_problems

_CASE = re.compile(r"_([a-z])")
# Fields that describe a part.
_DESCRIBING = frozenset(
    (
        "thought",
        "thoughtSignature",
        "videoMetadata",
        "mediaResolution",
        "mediaProcessing",
        "partMetadata",
        "speechMetadata",
        "audioTranscription",
    )
)
# Fields of a part that stands without data.
_WITHOUT_DATA = frozenset(("thoughtSignature", "videoMetadata"))


def problems(messages: Messages) -> Iterator[str]:
    messages = [_in_camel_case(content) for content in messages]
    # Roles are user and model.
    yield from role_problems(messages, ("user", "model"))
    # A multi-turn conversation begins with the user.
    if messages[0].get("role") != "user":
        yield "the first content is not the user's"
    for at, content in enumerate(messages):
        yield from _part_problems(content, f"content {at}")
    yield from _turn_problems(_joined(messages))


def _joined(messages: Messages) -> list[dict[str, Any]]:
    """Return one content per turn: consecutive contents of a role that call or answer are one."""
    turns: list[dict[str, Any]] = []
    for content in messages:
        before = turns[-1] if turns else {}
        kind = "functionCall" if content.get("role") == "model" else "functionResponse"
        if (
            before.get("role") == content.get("role")
            and _functions(before, kind)
            and _functions(content, kind)
        ):
            turns[-1] = {**before, "parts": [*before["parts"], *content["parts"]]}
        else:
            turns.append(content)
    return turns


def _in_camel_case(content: dict[str, Any]) -> dict[str, Any]:
    # Field names are accepted in both cases.
    parts = content.get("parts")
    if not isinstance(parts, list):
        return content
    renamed = [
        {_CASE.sub(lambda found: found[1].upper(), name): value for name, value in part.items()}
        for part in parts
        if isinstance(part, dict)
    ]
    return {**content, "parts": renamed}


def system_problems(system: Any) -> Iterator[str]:
    # The system instruction is a content of text parts.
    parts = system.get("parts") if isinstance(system, dict) else None
    # A single part may stand without a list.
    parts = [parts] if isinstance(parts, dict) else parts
    if not isinstance(parts, list) or not parts:
        yield "the system instruction has no parts"
    elif any(set(part) != {"text"} for part in parts):
        yield "the system instruction has a part that is not text"


def request_problems(request: Mapping[str, Any]) -> Iterator[str]:
    config = request.get("config", request)
    config = config if isinstance(config, Mapping) else {}
    choice = config.get("toolConfig", config.get("tool_config")) or {}
    calling = choice.get("functionCallingConfig", choice.get("function_calling_config")) or {}
    allowed = calling.get("allowedFunctionNames", calling.get("allowed_function_names")) or []
    # Names of allowed functions are accepted only in the modes ANY and VALIDATED.
    if allowed and str(calling.get("mode")).upper() not in ("ANY", "VALIDATED"):
        yield "allowed functions are named in another mode than ANY"
    names = names_of_tools(config.get("tools"))
    yield from (f"the allowed function {name!r} is not declared" for name in allowed if name not in names)


def _part_problems(content: dict[str, Any], place: str) -> Iterator[str]:
    parts = content.get("parts")
    # contents.parts must not be empty.
    if not isinstance(parts, list) or not parts:
        yield f"{place} has no parts"
        return
    for part in parts:
        # A field that is not known yet is data, if the part came from the API.
        data = [name for name in part if name not in _DESCRIBING]
        # A part has exactly one initialized field of data. A part that only describes another has none.
        if len(data) != 1 and (data or _WITHOUT_DATA.isdisjoint(part)):
            yield f"{place} has a part with {len(data)} fields of data"
        elif data and data[0] in ("functionCall", "functionResponse"):
            yield from _function_problems(part[data[0]], data[0], str(content.get("role")), place)
        # A response of a tool that Gemini runs follows its call; only Gemini makes both.
        tool = part.get("toolCall", part.get("toolResponse"))
        if tool is not None and content.get("role") != "model":
            yield f"{place} of role {content.get('role')} has a tool that Gemini runs"
        # Unknown names are refused, so a field of our own must not be sent.
        if any(name.lower().startswith("aforesaid") for name in part):
            yield f"{place} has a field that Gemini does not have"


def _function_problems(function: Any, kind: str, role: str, place: str) -> Iterator[str]:
    # A function is called by the model and answered by the user, by name, with an object.
    if is_blank(function.get("name")):
        yield f"{place} has a {kind} without a name"
    if role != ("model" if kind == "functionCall" else "user"):
        yield f"{place} of role {role} has a {kind}"
    body = function.get("args", {}) if kind == "functionCall" else function.get("response")
    if not isinstance(body, dict):
        yield f"{place} has a {kind} whose content is not an object"


def _turn_problems(messages: Messages) -> Iterator[str]:
    called = {call.get("id") for content in messages for call in _functions(content, "toolCall")}
    answered = {answer.get("id") for content in messages for answer in _functions(content, "toolResponse")}
    # What a tool of Gemini found is sent back with its call.
    yield from (f"the response of the tool {name!r} has no call" for name in answered - called)
    for at, content in enumerate(messages):
        calls, answers = _functions(content, "functionCall"), _functions(content, "functionResponse")
        before = messages[at - 1] if at else {}
        behind = messages[at + 1] if at + 1 < len(messages) else {}
        if calls:
            # A function call turn comes immediately after a user turn or after a function response turn.
            if before.get("role") != "user":
                yield f"content {at} calls a function and does not follow the user's turn"
            yield from _answer_problems(calls, _functions(behind, "functionResponse"), at)
        # A function response turn comes immediately after a function call turn.
        if answers and not _functions(before, "functionCall"):
            yield f"content {at} answers a function that the content before did not call"


def _answer_problems(calls: list[Any], answers: list[Any], at: int) -> Iterator[str]:
    # The number of function response parts equals the number of function call parts of the call turn.
    if len(calls) != len(answers):
        yield f"content {at} calls {len(calls)} functions and gets {len(answers)} answers"
        return
    for call, answer in zip(calls, answers, strict=True):
        if call.get("name") != answer.get("name"):
            yield f"content {at} calls {call.get('name')!r} and gets the answer of {answer.get('name')!r}"
        if call.get("id") != answer.get("id"):
            yield f"content {at} has a call and an answer with different ids"


def _functions(content: dict[str, Any], kind: str) -> list[Any]:
    parts = content.get("parts")
    return [part[kind] for part in parts if kind in part] if isinstance(parts, list) else []
