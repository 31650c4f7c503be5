"""OpenAI's Responses interface: a list of items, of which messages are one kind. Below: carrying.

In: a message item keeps role and content, its other fields in `extra`. An item of another type
(function_call, function_call_output, reasoning, and whatever comes) has no content for us; it is
kept whole in `extra`, with role `tool` when it answers a call, and `assistant` otherwise. The role
`developer` is our `system`; `extra` has the original.

Out, from other dialects:

- The system prompt is a message in the list, where it was said.
- An assistant's words are a message of text; each tool call and each result is an item.
- A result may hold pictures. Thinking and a provider's own blocks stay behind.

- A result has the type that its call asks for, a function's or a custom tool's.
- A message without content is refused by the provider and so left out.

A reasoning item belongs to the item after it and never moves away from it. One with nothing of the
assistant's behind it (an answer that was cut off) is refused by the provider and so left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from aforesaid.dialects.checks import check_content, require_text, split_fields
from aforesaid.dialects.conversion import (
    IdFitter,
    arguments_text,
    carried,
    result_parts,
    results_in,
    said_error,
    speaks,
    verbatim,
    words_in,
)
from aforesaid.dialects.meaning import Image, Part, Request, Text, ToolCall, ToolResult, is_blank
from aforesaid.dialects.parse import parts_of
from aforesaid.errors import InvalidMessage
from aforesaid.model.messages import Message, Role

NAME = "openai_responses"
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
LONGEST_ID = 64
"""Characters that the interface takes in a call id."""

_REQUIRED = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id",),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id",),
}


def read_one(document: dict[str, Any]) -> Message:
    """One item of the `input` or `output` list."""
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
    """The `input` of a request."""
    fit = IdFitter(messages, NAME, longest=LONGEST_ID)
    items: list[dict[str, Any]] = []
    for message in messages:
        if speaks(message, NAME):
            if message.content is not None and message.content != []:
                items.append(verbatim(message))
        else:
            items.extend(_converted(message, fit))
    return Request(messages=_without_dangling_reasoning(_with_matching_outputs(items)))


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """A tool's answer."""
    output = said_error(text, is_error=is_error)
    item = {"type": "function_call_output", "call_id": call_id, "output": output}
    return Message(role="tool", dialect=NAME, extra=item)


def is_by_the_model(document: dict[str, Any]) -> bool:
    """Return whether the model wrote this message or item of a request, in any dialect."""
    if "role" in document:
        return bool(document["role"] == "assistant")
    return _item_role(document) == "assistant"


def _item_role(item: dict[str, Any]) -> Role:
    if "role" in item:
        return ROLES.get(str(item["role"]), "assistant")
    kind = str(item.get("type", ""))
    return "tool" if kind.endswith(("_output", "_response")) else "assistant"


def _with_matching_outputs(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A custom tool's result is an item of another type; whoever made it may not have known the call."""
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
    led_to_something = False
    for item in reversed(items):
        if item.get("type") != "reasoning":
            led_to_something = item.get("role", "assistant") == "assistant" and not _answers(item)
        elif not led_to_something:
            continue
        kept.append(item)
    return kept[::-1]


def _answers(item: dict[str, Any]) -> bool:
    return _item_role(item) == "tool"


def _converted(message: Message, fit: IdFitter) -> Iterator[dict[str, Any]]:
    parts = parts_of(message)
    if message.role == "system":
        role = "developer" if message.extra.get("role") == "developer" else "system"
        yield from _said(role, "\n\n".join(words_in(parts)))
    elif message.role == "assistant":
        yield from _answer(parts, fit)
    else:
        yield from (_output(answer, fit) for answer in results_in(parts))
        yield from _said("user", _content(carried(parts)))


def _said(role: str, content: Any) -> Iterator[dict[str, Any]]:
    if content:
        yield {"role": role, "content": content}


def _answer(parts: Sequence[Part], fit: IdFitter) -> Iterator[dict[str, Any]]:
    """Words and calls in their order; words that stand together are one message."""
    words = ""
    for part in parts:
        if isinstance(part, Text):
            words += part.text
        elif isinstance(part, ToolCall):
            yield from _said("assistant", "" if is_blank(words) else words)
            words = ""
            yield _call(part, fit)
    yield from _said("assistant", "" if is_blank(words) else words)


def _call(call: ToolCall, fit: IdFitter) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": fit(call.id),
        "name": call.name,
        "arguments": arguments_text(call.arguments),
    }


def _output(answer: ToolResult, fit: IdFitter) -> dict[str, Any]:
    parts = result_parts(answer)
    if answer.is_error:
        parts = _with_error_said(parts)
    return {
        "type": "function_call_output",
        "call_id": fit(answer.call_id),
        "output": _content(parts),
    }


def _with_error_said(parts: list[Text | Image]) -> list[Text | Image]:
    first = parts[0] if parts else None
    if isinstance(first, Text):
        return [Text(said_error(first.text, is_error=True)), *parts[1:]]
    return [Text(said_error("", is_error=True)), *parts]


def _content(parts: Sequence[Text | Image]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in parts) and len(parts) < 2:
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [_block(part) for part in parts]


def _block(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "image_url": part.address, "detail": part.detail or "auto"}
