"""Rules of OpenAI's Chat Completions API."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from aforesaid.testing.provider_rules.common import (
    Call,
    Messages,
    arguments_problems,
    block_problems,
    blocks_in,
    id_problems,
    names_of_tools,
    role_problems,
    thread_problems,
)

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
KINDS: Mapping[str, Sequence[str]] = {
    # Only user messages may contain more than text.
    "system": ("text",),
    "developer": ("text",),
    "tool": ("text",),
    "assistant": ("text", "refusal"),
    "user": ("text", "image_url", "input_audio", "file"),
}
_INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")
_MAX_CALL_ID_LENGTH = 40
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)


def problems(messages: Messages, *, kinds: Mapping[str, Sequence[str]] = KINDS) -> Iterator[str]:
    # The roles of the API reference; `function` is deprecated but still accepted.
    yield from role_problems(messages, _ROLES)
    for at, message in enumerate(messages):
        place = f"message {at}"
        yield from _content_problems(message, place, kinds)
        yield from _calls_problems(message, place)
    calls = [(at, call) for at, message in enumerate(messages) for call in _calls_of(message)]
    # Ids tie results to calls: unique, and at most forty characters.
    yield from id_problems(
        [Call(call.get("id"), f"message {at}") for at, call in calls], max_length=_MAX_CALL_ID_LENGTH
    )
    # An assistant message with tool_calls must be followed by tool messages for each tool_call_id, and
    # a tool message must be a response to a preceding message with tool_calls.
    yield from thread_problems(messages)


MODES = ("none", "auto", "required")


def choice_problems(request: Mapping[str, Any], *, modes: Collection[str] = MODES) -> Iterator[str]:
    """Check the choice of tools; the interfaces of OpenAI share its rules."""
    choice, tools = request.get("tool_choice"), _tools_of(request)
    # tool_choice is only allowed when tools are specified.
    if choice is not None and not tools:
        yield "a tool is chosen, but there are no tools"
    elif isinstance(choice, Mapping) and choice.get("type") == "function":
        # The chosen function is one of the tools.
        name = choice.get("function", choice).get("name")
        if name not in names_of_tools(tools):
            yield f"the chosen tool {name!r} is not among the tools"
    elif isinstance(choice, str) and choice not in modes:
        yield f"the tool choice {choice!r} is unknown"


def _tools_of(request: Mapping[str, Any]) -> list[Any]:
    """Return the tools of a request, and those that items of its input add."""
    added = [item.get("tools") for item in blocks_in(request.get("input")) if _adds_tools(item)]
    return [tool for tools in (request.get("tools"), *added) for tool in tools or ()]


def _adds_tools(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "additional_tools"


def _content_problems(
    message: dict[str, Any], place: str, kinds: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if content is None:
        # Content is required, except in an assistant message with calls, a refusal or audio.
        if role != "assistant" or not any(message.get(field) for field in _INSTEAD_OF_CONTENT):
            yield f"{place} has no content"
        return
    yield from block_problems(content, place, kinds.get(str(role)))
    for block in blocks_in(content):
        yield from _part_problems(block, place)


def _part_problems(block: dict[str, Any], place: str) -> Iterator[str]:
    # A text part carries text.
    if block.get("type") == "text" and (not isinstance(block.get("text"), str) or not block["text"]):
        yield f"{place} has an empty text part"
    # An image part has an object with a URL, possibly a data URL.
    match block:
        case {"type": "image_url", "image_url": {"url": str()}}:
            return
        case {"type": "image_url"}:
            yield f"{place} has an image without a url"
        # Audio is an object with data and its format.
        case {"type": "input_audio", "input_audio": audio} if not isinstance(audio, dict):
            yield f"{place} has audio without a format"


def _calls_problems(message: dict[str, Any], place: str) -> Iterator[str]:
    if "function_call" in message:
        # The deprecated call names its function.
        yield from _name_problems(message["function_call"], place)
    if message.get("tool_calls") is None:
        return
    # Only the assistant calls tools, and an empty list of calls is refused as too short.
    if message.get("role") != "assistant":
        yield f"{place} calls tools and is not the assistant's"
    if not _calls_of(message):
        yield f"{place} has tool_calls without a call"
    for call in _calls_of(message):
        yield from _call_problems(call, place)


def _call_problems(call: dict[str, Any], place: str) -> Iterator[str]:
    match call:
        case {"type": "function", "function": {"name": str(), **function}}:
            # The arguments are generated and sent back as JSON text.
            yield from arguments_problems(function.get("arguments"), place)
            yield from _name_problems(call["function"], place)
        case {"type": "custom", "custom": {"name": str(), "input": str()}}:
            # A custom tool takes free text.
            yield from _name_problems(call["custom"], place)
        case _:
            yield f"{place} has a tool call that is neither a function nor custom: {call!r:.60}"


def _name_problems(function: Any, place: str) -> Iterator[str]:
    name = function.get("name") if isinstance(function, dict) else None
    # A name has letters, digits, underscores and hyphens, at most sixty-four.
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"{place} has a tool name that is refused: {name!r:.80}"


def _calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
