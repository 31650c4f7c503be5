"""Rules of Anthropic's Messages API."""

import re
from collections.abc import Iterator
from typing import Any

from aforesaid.testing.provider_rules.common import (
    Call,
    Messages,
    block_problems,
    blocks_in,
    id_problems,
    is_blank,
    role_problems,
)

_ROLES = ("user", "assistant", "system")
_THINKING = ("thinking", "redacted_thinking")
_USER_ONLY = ("tool_result", "image", "document", "search_result")
_ASSISTANT_ONLY = ("tool_use", "server_tool_use", *_THINKING)
_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_ID = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)


def problems(messages: Messages) -> Iterator[str]:
    # Roles are user and assistant; newer models also accept system messages between them.
    yield from role_problems(messages, _ROLES)
    # The first message must use the user role.
    if messages[0].get("role") != "user":
        yield "the first message is not the user's"
    for at, message in enumerate(messages):
        place = f"message {at}"
        yield from _content_problems(message, place, is_last=at + 1 == len(messages))
        for block in blocks_in(message.get("content")):
            yield from _block_problems(block, str(message.get("role")), place)
        yield from _thinking_problems(message, place)
    yield from _system_place_problems(messages)
    # Ids tie results to calls: unique within a request.
    yield from id_problems(
        [
            Call(block.get("id"), f"message {at}")
            for at, message in enumerate(messages)
            for block in _blocks(message, "tool_use")
        ]
    )
    yield from _pairing_problems(messages)


def system_problems(system: Any) -> Iterator[str]:
    # The system parameter is text or a list of text blocks, none of them blank.
    if isinstance(system, str):
        if is_blank(system):
            yield "the system prompt is empty"
        return
    yield from block_problems(system, "the system prompt", ("text",))
    if any(is_blank(block.get("text")) for block in blocks_in(system)):
        yield "the system prompt has an empty text block"


def _content_problems(message: dict[str, Any], place: str, *, is_last: bool) -> Iterator[str]:
    content = message.get("content")
    if is_last and message.get("role") == "assistant" and content in ("", []):
        # All messages must have content, except for the optional final assistant message.
        return
    yield from block_problems(content, place, None)
    if isinstance(content, str) and is_blank(content):
        # Text content must be non-empty, and more than whitespace.
        yield f"{place} is empty"


def _block_problems(block: dict[str, Any], role: str, place: str) -> Iterator[str]:
    kind = block.get("type")
    # Text content blocks must be non-empty and contain non-whitespace text.
    if kind == "text" and is_blank(block.get("text")):
        yield f"{place} has an empty text block"
    # Results and media come from the user, calls and thinking from the assistant.
    if (kind in _USER_ONLY and role != "user") or (kind in _ASSISTANT_ONLY and role != "assistant"):
        yield f"{place} of role {role} must not hold a {kind} block"
    if kind == "tool_use":
        yield from _tool_use_problems(block, place)
    elif kind == "tool_result":
        yield from _tool_result_problems(block, place)
    elif kind == "image":
        yield from _image_problems(block, place)


def _tool_use_problems(block: dict[str, Any], place: str) -> Iterator[str]:
    # A tool use has a name, an object as input, and an id of letters, digits, underscores and hyphens.
    if is_blank(block.get("name")):
        yield f"{place} has a tool use without a name"
    if not isinstance(block.get("input"), dict):
        yield f"{place} has a tool use whose input is not an object"
    if isinstance(block.get("id"), str) and not _ID.fullmatch(block["id"]):
        yield f"{place} has a tool use id with invalid characters: {block['id']!r:.60}"


def _tool_result_problems(block: dict[str, Any], place: str) -> Iterator[str]:
    # A result's content may be left out, is text, or a list of blocks under the same rules.
    content = block.get("content")
    if content is None or content == []:
        return
    yield from block_problems(content, f"a tool result in {place}", None)
    for inner in blocks_in(content):
        if inner.get("type") == "text" and is_blank(inner.get("text")):
            yield f"a tool result in {place} has an empty text block"
        if inner.get("type") == "image":
            yield from _image_problems(inner, place)


def _image_problems(block: dict[str, Any], place: str) -> Iterator[str]:
    match block.get("source"):
        case {"type": "base64", "media_type": str(kind), "data": str()}:
            # Four image types are accepted.
            if kind not in _MEDIA_TYPES:
                yield f"{place} has an image of kind {kind}"
        case {"type": "url", "url": str()} | {"type": "file", "file_id": str()}:
            return
        case _:
            # An image has a source: data, a URL or a file.
            yield f"{place} has an image without a source"


def _thinking_problems(message: dict[str, Any], place: str) -> Iterator[str]:
    blocks = blocks_in(message.get("content"))
    kinds = [block.get("type") for block in blocks]
    if not any(kind in _THINKING for kind in kinds):
        return
    # If an assistant message contains any thinking, the first block must be thinking.
    if kinds[0] not in _THINKING:
        yield f"{place} has thinking that does not come first"
    # The final block in an assistant message cannot be thinking.
    if kinds[-1] in _THINKING:
        yield f"{place} ends with thinking"
    # Thinking is passed back with its signature, redacted thinking with its data.
    for block in blocks:
        proof = {"thinking": "signature", "redacted_thinking": "data"}.get(str(block.get("type")))
        if proof is not None and not isinstance(block.get(proof), str):
            yield f"{place} has {block['type']} without its {proof}"


def _system_place_problems(messages: Messages) -> Iterator[str]:
    for at, message in enumerate(messages):
        if message.get("role") != "system" or at == 0:
            continue
        # A system message among the others stands directly behind a user's turn, and is words.
        if messages[at - 1].get("role") != "user":
            yield f"message {at} is a system message that does not follow the user's"
        if any(block.get("type") != "text" for block in blocks_in(message.get("content"))):
            yield f"message {at} is a system message with more than text"


def _pairing_problems(messages: Messages) -> Iterator[str]:
    for at, message in enumerate(messages):
        behind = messages[at + 1] if at + 1 < len(messages) else {}
        for call_id in _ids(message, "tool_use", "id"):
            # Each tool_use block must have a corresponding tool_result block in the next message.
            if call_id not in _ids(behind, "tool_result", "tool_use_id"):
                yield f"the tool call {call_id!r} of message {at} has no result in the next"
        yield from _result_problems(messages, at)


def _result_problems(messages: Messages, at: int) -> Iterator[str]:
    called = _ids(messages[at - 1], "tool_use", "id") if at else []
    answered = _ids(messages[at], "tool_result", "tool_use_id")
    for position, call_id in enumerate(answered):
        # Each tool_result block must have a corresponding tool_use block in the previous message.
        if call_id not in called:
            yield f"message {at} answers {call_id!r}, which the message before did not call"
        # Each tool_use must have a single result.
        if call_id in answered[:position]:
            yield f"message {at} answers {call_id!r} twice"
    # Tool results come first in the content; text comes after all of them.
    kinds = [block.get("type") == "tool_result" for block in blocks_in(messages[at].get("content"))]
    if kinds != sorted(kinds, reverse=True):
        yield f"message {at} has something before its tool results"


def _blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for block in blocks_in(message.get("content")) if block.get("type") == kind]


def _ids(message: dict[str, Any], kind: str, field: str) -> list[Any]:
    return [block.get(field) for block in _blocks(message, kind)]
