"""Rules of Amazon Bedrock's Converse API."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from aforesaid.testing.provider_rules.common import (
    Call,
    Messages,
    id_problems,
    is_blank,
    names_of_tools,
    role_problems,
)

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}", re.ASCII)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_FORMATS = ("png", "jpeg", "gif", "webp")


def problems(messages: Messages) -> Iterator[str]:
    yield from role_problems(messages, ("user", "assistant"))
    # A conversation must start with a user message.
    if messages[0].get("role") != "user":
        yield "the first message is not the user's"
    for at, message in enumerate(messages):
        # A conversation must alternate between user and assistant roles.
        if at and messages[at - 1].get("role") == message.get("role"):
            yield f"messages {at - 1} and {at} have the same role"
        yield from _content_problems(message, f"message {at}")
    yield from _server_tool_problems(messages)
    yield from id_problems(
        [
            Call(use.get("toolUseId"), f"message {at}")
            for at, message in enumerate(messages)
            for use in _values(message, "toolUse")
        ]
    )
    yield from _pairing_problems(messages)


def system_problems(system: Any) -> Iterator[str]:
    # The system prompt is a list of blocks; text is not blank.
    if not isinstance(system, list):
        yield "the system prompt is not a list of blocks"
    elif any(is_blank(block.get("text")) for block in system if "text" in block):
        yield "the system prompt has an empty text block"


def _content_problems(message: dict[str, Any], place: str) -> Iterator[str]:
    content = message.get("content")
    # The content field must not be empty.
    if not isinstance(content, list) or not content:
        yield f"{place} has no content"
        return
    for block in content:
        # A block is a union: exactly one member is set.
        if not isinstance(block, dict) or len(block) != 1:
            yield f"{place} has a block that is not one of its kinds: {block!r:.60}"
            continue
        ((kind, value),) = block.items()
        yield from _block_problems(kind, value, str(message.get("role")), place)


def _block_problems(kind: str, value: Any, role: str, place: str) -> Iterator[str]:
    # The text field in a content block is not blank.
    if kind == "text" and is_blank(value):
        yield f"{place} has an empty text block"
    # Results come from the user, calls and reasoning from the assistant.
    elif _is_server_tool(value):
        if role != "assistant":
            yield f"{place} of role {role} must not hold a tool of the provider"
    elif (kind == "toolResult" and role != "user") or (
        kind in ("toolUse", "reasoningContent") and role != "assistant"
    ):
        yield f"{place} of role {role} must not hold a {kind} block"
    elif kind == "toolUse":
        yield from _use_problems(value, place)
    elif kind == "toolResult" and not value.get("content"):
        yield f"{place} has a result without content"
    elif kind == "image" and value.get("format") not in _FORMATS:
        yield f"{place} has an image of format {value.get('format')!r}"


def _is_server_tool(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether the provider runs this tool itself: its use and its result are in one message."""
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and (kind == "server_tool_use" or kind.endswith("_result"))


def _server_tool_problems(messages: Messages) -> Iterator[str]:
    used: set[Any] = set()
    for at, message in enumerate(messages):
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            kind, value = next(iter(block.items()), ("", None)) if isinstance(block, dict) else ("", None)
            if not _is_server_tool(value):
                continue
            # The result of a tool of the provider follows its use.
            if kind == "toolUse":
                used.add(value.get("toolUseId"))
            elif value.get("toolUseId") not in used:
                yield f"message {at} has a result of the provider's tool that has no call"


def request_problems(request: Mapping[str, Any]) -> Iterator[str]:
    config = request.get("toolConfig")
    config = config if isinstance(config, Mapping) else {}
    names = names_of_tools(config.get("tools"))
    # toolConfig has at least one tool; the chosen tool is one of them.
    if "toolConfig" in request and not config.get("tools"):
        yield "the tool configuration has no tools"
    choice = config.get("toolChoice") or {}
    if len(choice) > 1 or not set(choice) <= {"auto", "any", "tool"}:
        yield f"the tool choice {sorted(choice)} is not one of its kinds"
    elif "tool" in choice and choice["tool"].get("name") not in names:
        yield f"the chosen tool {choice['tool'].get('name')!r} is not among the tools"
    # The toolConfig field must be defined when using toolUse and toolResult content blocks.
    if "toolConfig" not in request and any(
        _values(message, kind) for message in request["messages"] for kind in ("toolUse", "toolResult")
    ):
        yield "the messages use tools, but there is no tool configuration"


def _use_problems(use: Any, place: str) -> Iterator[str]:
    if not isinstance(use.get("toolUseId"), str) or not _ID.fullmatch(use["toolUseId"]):
        yield f"{place} has a tool use id that is refused: {use.get('toolUseId')!r:.80}"
    if not isinstance(use.get("name"), str) or not _NAME.fullmatch(use["name"]):
        yield f"{place} has a tool name that is refused: {use.get('name')!r:.80}"
    if not isinstance(use.get("input"), dict):
        yield f"{place} has a tool use whose input is not an object"


def _pairing_problems(messages: Messages) -> Iterator[str]:
    for at, message in enumerate(messages):
        behind = messages[at + 1] if at + 1 < len(messages) else {}
        before = messages[at - 1] if at else {}
        answers = [each.get("toolUseId") for each in _values(behind, "toolResult")]
        for use in _values(message, "toolUse"):
            # Each toolUse block of a turn has a toolResult block in the next turn.
            if answers.count(use.get("toolUseId")) != 1:
                yield f"the tool use {use.get('toolUseId')!r} of message {at} has not one result"
        called = [each.get("toolUseId") for each in _values(before, "toolUse")]
        for answer in _values(message, "toolResult"):
            # The toolResult blocks do not exceed the toolUse blocks of the previous turn.
            if answer.get("toolUseId") not in called:
                yield f"message {at} answers {answer.get('toolUseId')!r}, which was not called before it"


def _values(message: dict[str, Any], kind: str) -> list[Any]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    found = [block[kind] for block in blocks if isinstance(block, dict) and kind in block]
    return [value for value in found if not _is_server_tool(value)]
