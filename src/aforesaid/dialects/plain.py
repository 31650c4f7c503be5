"""Aforesaid's own plain form: role and content, independent of providers.

Parsing: content is any JSON. Fields of Aforesaid's messages (`timestamp`, `tags`, …) set those fields and
are not part of a request. All other fields are kept in `extra`.

A tool call is `{"id", "name", "arguments"}` in the assistant's `tool_calls`. Its arguments are an object,
or the model's text when that is not one. A result is a message of role `tool` with its call's
`tool_call_id`, and `is_error` for an error. Images and documents are blocks in Anthropic's form. Thinking is
left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from aforesaid.dialects.conversion import (
    ANY_ID,
    Convertible,
    Draft,
    arguments_object,
    calls_in,
    check_role,
    convertible_parts,
    result_parts,
    results_in,
    texts_in,
)
from aforesaid.dialects.parse import Other, Part, Request, Text, ToolCall, ToolResult, parts_of
from aforesaid.errors import InvalidMessage
from aforesaid.model.messages import ROLES, Message

NAME = "plain"
CALL_IDS = ANY_ID


def read_one(document: dict[str, Any]) -> Message:
    """Parse one message."""
    check_role(document, ROLES, dialect=NAME)
    if document.get("content", UNSET) is UNSET and not document.get("tool_calls"):
        raise InvalidMessage("a plain message needs content or tool_calls", field="content")
    return Message.from_dict({**document, "dialect": NAME})


def write(messages: Sequence[Message]) -> Request:
    """Render the messages as plain role messages."""
    # Programs that only store need no renderer.
    from aforesaid.dialects.role_messages import write_role_messages

    return Request(messages=write_role_messages(messages, NAME, _convert))


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """Return a tool result message."""
    flag = {"is_error": True} if is_error else {}
    return Message(role="tool", content=text, dialect=NAME, extra={"tool_call_id": call_id, **flag})


def _convert(message: Message) -> Iterator[Draft]:
    parts = parts_of(message)
    if message.role in ("assistant", "system"):
        content = _content([Text(text) for text in texts_in(parts)])
        calls = {"tool_calls": [_call(call) for call in calls_in(parts)]} if calls_in(parts) else {}
        if content or calls:
            yield _draft({"role": message.role, "content": content, **calls})
        return
    for answer in results_in(parts):
        yield _draft(_tool_message(answer))
    yield from _user_drafts(parts)


def _user_drafts(parts: Sequence[Part]) -> Iterator[Draft]:
    content = _content(convertible_parts(parts))
    if content:
        yield _draft({"role": "user", "content": content})


def _draft(document: dict[str, Any]) -> Draft:
    return Draft(document=document, converted=True)


def _tool_message(answer: ToolResult) -> dict[str, Any]:
    document = {"role": "tool", "tool_call_id": answer.call_id, "content": _content(result_parts(answer))}
    return {**document, "is_error": True} if answer.is_error else document


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": arguments_object(call.arguments)}


def _content(parts: Sequence[Convertible]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [_block(part) for part in parts] if parts else ""


def _block(part: Convertible) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Other):
        from aforesaid.dialects.anthropic import document_block

        return document_block(part)
    if part.data is None:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}
