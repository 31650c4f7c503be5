"""Rules of Anthropic's Messages API."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aforesaid.testing.provider_rules.common import (
    Call,
    Messages,
    block_problems,
    blocks_in,
    id_problems,
    is_blank,
    names_of_tools,
    role_problems,
)

_ROLES = ("user", "assistant", "system")
_THINKING = ("thinking", "redacted_thinking")
_USER_ONLY = ("tool_result", "image", "document", "search_result")
_ASSISTANT_ONLY = ("tool_use", "compaction", "fallback", "mcp_tool_listing", *_THINKING)
_SYSTEM_ONLY = ("tool_addition", "tool_removal")
_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_ID = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}", re.ASCII)
_MAX_CACHE_MARKS = 4


def problems(messages: Messages) -> Iterator[str]:
    # Roles are user and assistant; newer models also accept system messages between them.
    yield from role_problems(messages, _ROLES)
    for at, message in enumerate(messages):
        place = f"message {at}"
        yield from _content_problems(message, place, is_last=at + 1 == len(messages))
        for block in blocks_in(message.get("content")):
            yield from _block_problems(block, str(message.get("role")), place)
        yield from _thinking_problems(message, place)
    yield from _system_place_problems(messages)
    yield from _pairing_problems(_turns(messages))
    yield from _server_tool_problems(messages)
    yield from _end_problems(messages[-1])


def _turns(messages: Messages) -> list[dict[str, Any]]:
    """Return one message per turn: consecutive messages of a role are combined into one."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        content = message.get("content")
        blocks = [{"type": "text"}] if isinstance(content, str) else blocks_in(content)
        if turns and turns[-1]["role"] == message.get("role"):
            turns[-1] = {"role": message.get("role"), "content": [*turns[-1]["content"], *blocks]}
        elif message.get("role") != "system":
            turns.append({"role": message.get("role"), "content": blocks})
    return turns


def system_problems(system: Any) -> Iterator[str]:
    # The system parameter is text or a list of text blocks, none of them blank.
    if isinstance(system, str):
        if is_blank(system):
            yield "the system prompt is empty"
        return
    yield from block_problems(system, "the system prompt", ("text",))
    if any(is_blank(block.get("text")) for block in blocks_in(system)):
        yield "the system prompt has an empty text block"


def choice_problems(request: Mapping[str, Any]) -> Iterator[str]:
    choice = request.get("tool_choice")
    if not isinstance(choice, Mapping):
        return
    kind = choice.get("type")
    # tool_choice may only be specified while providing tools.
    if not request.get("tools"):
        yield "a tool is chosen, but there are no tools"
    # The chosen tool must be one of the tools.
    elif kind == "tool" and choice.get("name") not in names_of_tools(request["tools"]):
        yield f"the chosen tool {choice.get('name')!r} is not among the tools"
    # Thinking may not be enabled when tool_choice forces tool use. Adaptive thinking may.
    thinking = request.get("thinking")
    enabled = isinstance(thinking, Mapping) and thinking.get("type") == "enabled"
    if kind in ("any", "tool") and enabled:
        yield "thinking is enabled, and a tool is forced"


def request_problems(messages: Messages, system: Any) -> Iterator[str]:
    # A maximum of 4 blocks with cache_control may be provided, over the whole request.
    contents = [system, *(message.get("content") for message in messages)]
    marks = sum(_marks(content) for content in contents)
    if marks > _MAX_CACHE_MARKS:
        yield f"{marks} blocks have cache_control"


def _marks(content: Any) -> int:
    return sum(
        (block.get("cache_control") is not None) + _marks(block.get("content"))
        for block in blocks_in(content)
    )


def _content_problems(message: dict[str, Any], place: str, *, is_last: bool) -> Iterator[str]:
    content = message.get("content")
    if is_last and message.get("role") == "assistant" and content in ("", []):
        # All messages must have content, except for the optional final assistant message.
        return
    yield from block_problems(content, place, None)
    if isinstance(content, str) and is_blank(content):
        # Text content must be non-empty, and more than whitespace.
        yield f"{place} is empty"


def _end_problems(message: dict[str, Any]) -> Iterator[str]:
    if message.get("role") != "assistant":
        return
    content = message.get("content")
    blocks = blocks_in(content)
    text = content if isinstance(content, str) else blocks[-1].get("text") if blocks else None
    # Final assistant content cannot end with trailing whitespace.
    if isinstance(text, str) and text != text.rstrip():
        yield "the final message is the assistant's and ends with a blank"


def _block_problems(block: dict[str, Any], role: str, place: str) -> Iterator[str]:
    kind = str(block.get("type"))
    # Text content blocks must be non-empty and contain non-whitespace text.
    if kind == "text" and is_blank(block.get("text")):
        yield f"{place} has an empty text block"
    # Results and media come from the user, calls and thinking from the assistant, changes of tools from
    # the system. The provider's own tools are called and answered in the assistant's messages.
    allowed = next(
        (
            owner
            for owner, kinds in (
                ("user", _USER_ONLY),
                ("assistant", _ASSISTANT_ONLY),
                ("system", _SYSTEM_ONLY),
            )
            if kind in kinds
        ),
        "assistant" if kind.endswith(("_tool_use", "_tool_result")) else role,
    )
    if allowed != role:
        yield f"{place} of role {role} must not hold a {kind} block"
    if kind == "tool_use":
        yield from _tool_use_problems(block, place)
    elif kind == "tool_result":
        yield from _tool_result_problems(block, place)
    elif kind == "image":
        yield from _image_problems(block, place)
    # A compaction's summary is text; null marks a compaction that failed.
    elif kind == "compaction" and block.get("content") == "":
        yield f"{place} has an empty compaction"


def _tool_use_problems(block: dict[str, Any], place: str) -> Iterator[str]:
    # A tool use has a name, an object as input, and an id of letters, digits, underscores and hyphens.
    if not isinstance(block.get("name"), str) or not _NAME.fullmatch(block["name"]):
        yield f"{place} has a tool use without a valid name: {block.get('name')!r:.60}"
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
    kinds = [str(block.get("type")) for block in blocks]
    if not any(kind in _THINKING for kind in kinds):
        return
    before = kinds[: next(at for at, kind in enumerate(kinds) if kind in _THINKING)]
    # If an assistant message contains any thinking, the first block must be thinking. It may follow what the
    # provider added by itself: its own tools, a summary, a change of the model.
    if before and not any(_is_providers_own(kind) for kind in before):
        yield f"{place} has thinking that does not come first"
    # The final block in an assistant message cannot be thinking.
    if kinds[-1] in _THINKING:
        yield f"{place} ends with thinking"
    # Thinking is passed back with its signature, redacted thinking with its data.
    for block in blocks:
        proof = {"thinking": "signature", "redacted_thinking": "data"}.get(str(block.get("type")))
        if proof is not None and not isinstance(block.get(proof), str):
            yield f"{place} has {block['type']} without its {proof}"


def _is_providers_own(kind: str) -> bool:
    return kind in ("compaction", "fallback", "mcp_tool_listing") or kind.endswith(
        ("_tool_use", "_tool_result")
    )


def _system_place_problems(messages: Messages) -> Iterator[str]:
    for at, message in enumerate(messages):
        if message.get("role") != "system" or at == 0:
            continue
        # System messages among the others stand directly behind a user's turn: words and changes of tools.
        if messages[at - 1].get("role") not in ("user", "system"):
            yield f"message {at} is a system message that does not follow the user's"
        if any(
            block.get("type") not in ("text", *_SYSTEM_ONLY) for block in blocks_in(message.get("content"))
        ):
            yield f"message {at} is a system message with more than text"


def _pairing_problems(messages: Messages) -> Iterator[str]:
    for at, message in enumerate(messages):
        behind = messages[at + 1] if at + 1 < len(messages) else {}
        # Ids tie results to calls: unique within a turn.
        yield from id_problems([Call(call_id, f"turn {at}") for call_id in _ids(message, "tool_use", "id")])
        for call_id in _ids(message, "tool_use", "id"):
            # Each tool_use block must have a corresponding tool_result block in the next message.
            if call_id not in _ids(behind, "tool_result", "tool_use_id"):
                yield f"the tool call {call_id!r} of turn {at} has no result in the next"
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


def _server_tool_problems(messages: Messages) -> Iterator[str]:
    """Check the provider's own tools: each use has a result block, in its message or the assistant's next."""
    answers = [message for message in messages if message.get("role") == "assistant"]
    for at, message in enumerate(answers):
        blocks = blocks_in(message.get("content"))
        called = [block.get("id") for block in blocks if _is_use(block)]
        earlier = blocks_in(answers[at - 1].get("content")) if at else []
        for block in blocks:
            # A result block has a corresponding use block before it.
            known = (*(each.get("id") for each in earlier if _is_use(each)), *called)
            if _is_result(block) and block.get("tool_use_id") not in known:
                yield f"a {block.get('type')} block answers {block.get('tool_use_id')!r} without a call"
        found = {block.get("tool_use_id") for block in blocks if _is_result(block)}
        if at + 1 < len(answers):
            found |= {
                block.get("tool_use_id")
                for block in blocks_in(answers[at + 1].get("content"))
                if _is_result(block)
            }
        elif _is_open(messages, message):
            continue
        # A use block without a corresponding result block is refused.
        yield from (
            f"the provider's tool call {each!r} has no result" for each in called if each not in found
        )


def _is_open(messages: Messages, last_answer: dict[str, Any]) -> bool:
    """Return whether the model goes on with this answer: it is the last message, or client results follow."""
    at = next(at for at in reversed(range(len(messages))) if messages[at] is last_answer)
    behind = messages[at + 1 :]
    return not behind or (len(behind) == 1 and bool(_blocks(behind[0], "tool_result")))


def _is_use(block: dict[str, Any]) -> bool:
    return str(block.get("type")).endswith("_tool_use")


def _is_result(block: dict[str, Any]) -> bool:
    return str(block.get("type")).endswith("_tool_result")


def _blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for block in blocks_in(message.get("content")) if block.get("type") == kind]


def _ids(message: dict[str, Any], kind: str, field: str) -> list[Any]:
    return [block.get(field) for block in _blocks(message, kind)]
