"""Aforesaid's own plain form: a role, content, and no provider in mind. Below: threads, carrying.

In: content is any JSON. The fields that Aforesaid's messages have (`timestamp`, `tags`, ...) become
theirs and are labels, no part of a request; every other field is kept in `extra`.

A tool call is `{"id", "name", "arguments"}` in the assistant's `tool_calls`, its arguments an object
or, when they are not one, the text that the model wrote. A result is a message of role `tool` with
its call's `tool_call_id`, and `is_error` when it is one. Pictures are blocks beside text blocks, as
Anthropic writes them. Thinking stays behind.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from aforesaid.dialects.checks import check_role
from aforesaid.dialects.conversion import (
    Draft,
    arguments_object,
    calls_in,
    carried,
    result_parts,
    results_in,
    words_in,
)
from aforesaid.dialects.meaning import Image, Part, Request, Text, ToolCall, ToolResult
from aforesaid.dialects.parse import parts_of
from aforesaid.dialects.threads import thread
from aforesaid.errors import InvalidMessage
from aforesaid.model.messages import ROLES, Message

NAME = "plain"


def read_one(document: dict[str, Any]) -> Message:
    """One message in its documented form."""
    check_role(document, ROLES, dialect=NAME)
    if document.get("content", UNSET) is UNSET and not document.get("tool_calls"):
        raise InvalidMessage("a plain message needs content or tool_calls", field="content")
    return Message.from_dict({**document, "dialect": NAME})


def write(messages: Sequence[Message]) -> Request:
    """The messages as plain role messages."""
    return Request(messages=thread(messages, NAME, _converted))


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """A tool's answer."""
    flag = {"is_error": True} if is_error else {}
    return Message(role="tool", content=text, dialect=NAME, extra={"tool_call_id": call_id, **flag})


def _converted(message: Message) -> Iterator[Draft]:
    parts = parts_of(message)
    if message.role in ("assistant", "system"):
        said = _content([Text(text) for text in words_in(parts)])
        calls = {"tool_calls": [_call(call) for call in calls_in(parts)]} if calls_in(parts) else {}
        if said or calls:
            yield _draft({"role": message.role, "content": said, **calls})
        return
    for answer in results_in(parts):
        yield _draft(_tool_message(answer))
    yield from _question(parts)


def _question(parts: Sequence[Part]) -> Iterator[Draft]:
    content = _content(carried(parts))
    if content:
        yield _draft({"role": "user", "content": content})


def _draft(document: dict[str, Any]) -> Draft:
    return Draft(document=document, converted=True)


def _tool_message(answer: ToolResult) -> dict[str, Any]:
    document = {"role": "tool", "tool_call_id": answer.call_id, "content": _content(result_parts(answer))}
    return {**document, "is_error": True} if answer.is_error else document


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": arguments_object(call.arguments)}


def _content(parts: Sequence[Text | Image]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [_block(part) for part in parts] if parts else ""


def _block(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.data is None:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}
