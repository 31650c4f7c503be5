"""OpenAI's Chat Completions, and the many servers that speak it. Below: threads, carrying.

In: a message keeps role and content; tool calls, refusals, names and all else stay in `extra`. The
role `developer` is our `system`, the deprecated `function` our `tool`; `extra` has the original.

Out, from other dialects:

- The system prompt is a `system` message, where it was said.
- A tool message takes text only. A result's picture is named there, and follows behind the results
  in a user message.
- An assistant's message takes text only: thinking and a provider's own blocks stay behind.

Out, from this dialect: parts with empty text are refused by the provider and so left out, and with them a
message that has nothing else. A tool message stays, with empty text.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from aforesaid.dialects.checks import check_content, require_text, split_fields
from aforesaid.dialects.conversion import (
    Draft,
    IdFitter,
    arguments_text,
    calls_in,
    carried,
    result_parts,
    results_in,
    said_error,
    words_in,
)
from aforesaid.dialects.meaning import Image, Part, Request, Text, ToolCall, ToolResult
from aforesaid.dialects.parse import parts_of
from aforesaid.dialects.threads import thread
from aforesaid.errors import InvalidMessage, shown
from aforesaid.model.messages import Message, Role

NAME = "openai_chat"
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")
"""Fields of an assistant's message that may stand without content."""
LONGEST_ID = 40
"""Characters that the interface takes in a tool call id."""


def read_one(document: dict[str, Any]) -> Message:
    """One message of the `messages` list."""
    role, content, extra = split_fields(document, ROLES, dialect=NAME)
    check_content(content, dialect=NAME, may_be_empty=role == "assistant")
    if document["role"] == "tool":
        require_text(document, "tool_call_id", what="a tool message")
    _check_calls(document.get("tool_calls"))
    return Message(role=role, content=content, dialect=NAME, extra=extra)


def write(messages: Sequence[Message]) -> Request:
    """The `messages` of a request."""
    fit = IdFitter(messages, NAME, longest=LONGEST_ID)
    documents = thread(messages, NAME, lambda message: _converted(message, fit))
    return Request(messages=[tidied for document in documents if (tidied := _tidied(document)) is not None])


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """A tool's answer."""
    return Message(
        role="tool",
        content=said_error(text, is_error=is_error),
        dialect=NAME,
        extra={"tool_call_id": call_id},
    )


def _check_calls(calls: Any) -> None:
    if calls is None:
        return
    if not isinstance(calls, list):
        raise InvalidMessage(f"tool_calls must be a list; got {shown(calls)}", field="tool_calls")
    for call in calls:
        if not isinstance(call, dict):
            raise InvalidMessage(f"a tool call must be an object; got {shown(call)}", field="tool_calls")
        require_text(call, "id", what="a tool call")


def _tidied(document: dict[str, Any]) -> dict[str, Any] | None:
    """The message without what the provider refuses; None when that was all of it."""
    content = document.get("content")
    if isinstance(content, list):
        kept = [part for part in content if not _is_empty(part)]
        if kept:
            return document if len(kept) == len(content) else {**document, "content": kept}
    elif content is not None:
        return document
    if document["role"] in ("tool", "function"):
        return {**document, "content": ""}
    if document["role"] == "assistant" and any(document.get(field) for field in INSTEAD_OF_CONTENT):
        return document if content is None else {**document, "content": None}
    return None


def _is_empty(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and not part.get("text")


def _converted(message: Message, fit: IdFitter) -> Iterator[Draft]:
    parts = parts_of(message)
    if message.role == "system":
        role = "developer" if message.extra.get("role") == "developer" else "system"
        yield from _said(role, _text_content(words_in(parts)))
    elif message.role == "assistant":
        yield from _answer(parts, fit)
    else:
        for answer in results_in(parts):
            yield Draft(document=_tool_message(answer, fit), converted=True)
        yield from _question(parts, fit)


def _said(role: str, content: Any) -> Iterator[Draft]:
    if content:
        yield Draft(document={"role": role, "content": content}, converted=True)


def _answer(parts: Sequence[Part], fit: IdFitter) -> Iterator[Draft]:
    content, calls = _text_content(words_in(parts)), calls_in(parts)
    if calls:
        document = {
            "role": "assistant",
            "content": content,
            "tool_calls": [_call(call, fit) for call in calls],
        }
        yield Draft(document=document, converted=True)
    else:
        yield from _said("assistant", content)


def _question(parts: Sequence[Part], fit: IdFitter) -> Iterator[Draft]:
    pictures = [block for answer in results_in(parts) for block in _pictures_of(answer, fit)]
    blocks = pictures + [_block(part) for part in carried(parts)]
    if blocks:
        alone = len(blocks) == 1 and blocks[0]["type"] == "text"
        document = {"role": "user", "content": blocks[0]["text"] if alone else blocks}
        yield Draft(document=document, converted=True, trailing=bool(pictures))


def _tool_message(answer: ToolResult, fit: IdFitter) -> dict[str, Any]:
    words = [part.text if isinstance(part, Text) else "[image: see below]" for part in result_parts(answer)]
    return {
        "role": "tool",
        "tool_call_id": fit(answer.call_id),
        "content": said_error("\n".join(words), is_error=answer.is_error),
    }


def _pictures_of(answer: ToolResult, fit: IdFitter) -> list[dict[str, Any]]:
    pictures = [_block(part) for part in result_parts(answer) if isinstance(part, Image)]
    heading = f"Returned by tool call {fit(answer.call_id)}:"
    return [{"type": "text", "text": heading}, *pictures] if pictures else []


def _call(call: ToolCall, fit: IdFitter) -> dict[str, Any]:
    return {
        "id": fit(call.id),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
    }


def _text_content(words: list[str]) -> str | list[dict[str, Any]] | None:
    if len(words) > 1:
        return [{"type": "text", "text": text} for text in words]
    return words[0] if words else None


def _block(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    detail = {} if part.detail is None else {"detail": part.detail}
    return {"type": "image_url", "image_url": {"url": part.address, **detail}}
