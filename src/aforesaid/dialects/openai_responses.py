"""OpenAI's Responses API: a list of items, some of which are messages.

Parsing: a message item keeps role and content; its other fields go to `extra`. An item of another type
(function_call, function_call_output, reasoning, …) is stored whole in `extra` without content. Its role is
`tool` if it answers a call, else `assistant`. The role `developer` becomes `system`; `extra` has the
original.

Rendering from other dialects:

- The system prompt is a message at its place in the log.
- An assistant's text is a message; each tool call and each result is an item.
- A result may contain images. Thinking and provider-specific blocks are left out.
- A result's type follows from its call: a function's or a custom tool's.
- A message without content is rejected by the provider and left out.

A reasoning item belongs to the item after it. A reasoning item without a following assistant item (a
truncated answer) is rejected by the provider and left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from aforesaid.dialects.conversion import (
    CallIdMapper,
    arguments_text,
    check_content,
    convertible_parts,
    is_native,
    require_text,
    result_parts,
    results_in,
    split_fields,
    texts_in,
    verbatim,
    with_error_prefix,
)
from aforesaid.dialects.parse import Image, Part, Request, Text, ToolCall, ToolResult, is_blank, parts_of
from aforesaid.errors import InvalidMessage
from aforesaid.model.messages import Message, Role

NAME = "openai_responses"
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
# The API's maximum length of a call id.
MAX_CALL_ID_LENGTH = 64

_REQUIRED = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id",),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id",),
}


def read_one(document: dict[str, Any]) -> Message:
    """Parse one item of the `input` or `output` list."""
    if document.get("type", "message") == "message" and ("role" in document or "content" in document):
        role, content, extra = split_fields(document, ROLES, dialect=NAME)
        check_content(content, dialect=NAME)
        return Message(role=role, content=content, dialect=NAME, extra=extra)
    if not isinstance(document.get("type", ""), str) or not (document.get("type") or document.get("id")):
        raise InvalidMessage(
            "an item needs a role and content, or a type, or an id to refer to", field="type"
        )
    for field in _REQUIRED.get(str(document.get("type")), ()):
        require_text(document, field, what=f"a {document['type']} item")
    return Message(role=_item_role(document), content=UNSET, dialect=NAME, extra=dict(document))


def write(messages: Sequence[Message]) -> Request:
    """Render the `input` of a request."""
    map_id = CallIdMapper(messages, NAME, max_length=MAX_CALL_ID_LENGTH)
    items: list[dict[str, Any]] = []
    for message in messages:
        if is_native(message, NAME):
            if message.content is not None and message.content != []:
                items.append(verbatim(message))
        else:
            items.extend(_convert(message, map_id))
    return Request(messages=_without_dangling_reasoning(_with_matching_outputs(items)))


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """Return a tool result message."""
    output = with_error_prefix(text, is_error=is_error)
    item = {"type": "function_call_output", "call_id": call_id, "output": output}
    return Message(role="tool", dialect=NAME, extra=item)


def is_from_model(document: dict[str, Any]) -> bool:
    """Return whether the model wrote this message or item of a request, in any dialect."""
    if "role" in document:
        return document["role"] in ("assistant", "model")
    return _item_role(document) == "assistant"


def _item_role(item: dict[str, Any]) -> Role:
    if "role" in item:
        return ROLES.get(str(item["role"]), "assistant")
    kind = str(item.get("type", ""))
    return "tool" if kind.endswith(("_output", "_response")) else "assistant"


def _with_matching_outputs(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give results of custom tool calls their own item type. The result's author may not know the type of
    the call.
    """
    custom = {str(item.get("call_id")) for item in items if item.get("type") == "custom_tool_call"}
    if not custom:
        return items
    return [
        {**item, "type": "custom_tool_call_output"}
        if item.get("type") == "function_call_output" and str(item.get("call_id")) in custom
        else item
        for item in items
    ]


def _without_dangling_reasoning(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    has_successor = False
    for item in reversed(items):
        if item.get("type") != "reasoning":
            has_successor = item.get("role", "assistant") == "assistant" and not _is_result(item)
        elif not has_successor:
            continue
        kept.append(item)
    return kept[::-1]


def _is_result(item: dict[str, Any]) -> bool:
    return _item_role(item) == "tool"


def _convert(message: Message, map_id: CallIdMapper) -> Iterator[dict[str, Any]]:
    parts = parts_of(message)
    if message.role == "system":
        role = "developer" if message.extra.get("role") == "developer" else "system"
        yield from _message(role, "\n\n".join(texts_in(parts)))
    elif message.role == "assistant":
        yield from _assistant_items(parts, map_id)
    else:
        yield from (_output(answer, map_id) for answer in results_in(parts))
        yield from _message("user", _content(convertible_parts(parts)))


def _message(role: str, content: Any) -> Iterator[dict[str, Any]]:
    if content:
        yield {"role": role, "content": content}


def _assistant_items(parts: Sequence[Part], map_id: CallIdMapper) -> Iterator[dict[str, Any]]:
    """Yield texts and calls in order; adjacent texts form one message."""
    words = ""
    for part in parts:
        if isinstance(part, Text):
            words += part.text
        elif isinstance(part, ToolCall):
            yield from _message("assistant", "" if is_blank(words) else words)
            words = ""
            yield _call(part, map_id)
    yield from _message("assistant", "" if is_blank(words) else words)


def _call(call: ToolCall, map_id: CallIdMapper) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": map_id(call.id),
        "name": call.name,
        "arguments": arguments_text(call.arguments),
    }


def _output(answer: ToolResult, map_id: CallIdMapper) -> dict[str, Any]:
    parts = result_parts(answer)
    if answer.is_error:
        parts = _with_error_text(parts)
    return {
        "type": "function_call_output",
        "call_id": map_id(answer.call_id),
        "output": _content(parts),
    }


def _with_error_text(parts: list[Text | Image]) -> list[Text | Image]:
    first = parts[0] if parts else None
    if isinstance(first, Text):
        return [Text(with_error_prefix(first.text, is_error=True)), *parts[1:]]
    return [Text(with_error_prefix("", is_error=True)), *parts]


def _content(parts: Sequence[Text | Image]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in parts) and len(parts) < 2:
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [_block(part) for part in parts]


def _block(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "image_url": part.as_url, "detail": part.detail or "auto"}
