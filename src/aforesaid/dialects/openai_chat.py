"""OpenAI's Chat Completions API, which many servers implement.

Parsing: a message keeps role and content; tool calls, refusals, names and other fields go to `extra`. The
role `developer` becomes `system` and the deprecated `function` becomes `tool`; `extra` has the original.

Rendering from other dialects:

- The system prompt is a `system` message at its place in the log.
- A tool message contains only text. A result's image is mentioned there and follows the results in a user
  message.
- An assistant message contains only text. Thinking and provider-specific blocks are left out.

Rendering from this dialect: parts with empty text are rejected by the provider and left out, as is a
message that has nothing else. A tool message stays, with empty text.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from aforesaid.dialects.conversion import (
    CallIdRule,
    Convertible,
    Draft,
    arguments_text,
    calls_in,
    check_content,
    convertible_parts,
    require_text,
    result_parts,
    results_in,
    split_fields,
    texts_in,
    with_error_prefix,
)
from aforesaid.dialects.parse import (
    Image,
    Other,
    Part,
    Request,
    Text,
    ToolCall,
    ToolResult,
    parts_in,
    parts_of,
)
from aforesaid.dialects.role_messages import write_role_messages
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
# Fields that allow an assistant message without content.
INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "refusal", "audio")
CALL_IDS = CallIdRule(max_length=40)


def read_one(document: dict[str, Any]) -> Message:
    """Parse one message of the `messages` list."""
    role, content, extra = split_fields(document, ROLES, dialect=NAME)
    check_content(content, dialect=NAME, may_be_empty=role == "assistant")
    if document["role"] == "tool" and not isinstance(document.get("tool_name", document.get("name")), str):
        # Ollama's results name the tool.
        require_text(document, "tool_call_id", what="a tool message")
    _check_calls(document.get("tool_calls"))
    return Message(role=role, content=content, dialect=NAME, extra=extra)


def write(messages: Sequence[Message]) -> Request:
    """Render the `messages` of a request."""
    return Request(messages=[with_own_parts(document) for document in documents_of(messages)])


def documents_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a request, with the parts that other servers have."""
    documents = write_role_messages(messages, NAME, _convert)
    return [cleaned for document in documents if (cleaned := _without_rejected(document)) is not None]


def with_own_parts(document: dict[str, Any]) -> dict[str, Any]:
    """Return a user's message whose parts of other servers, such as Mistral's, are parts of OpenAI's."""
    content = document.get("content")
    if document["role"] != "user" or not isinstance(content, list):
        return document
    if not any(map(_is_foreign, content)):
        return document
    return {**document, "content": [own for part in content for own in own_parts(part)]}


def _is_foreign(part: dict[str, Any]) -> bool:
    match part:
        case {"type": "document_url" | "audio_url" | "video_url"}:
            return True
        case {"type": "image_url", "image_url": str()} | {"type": "input_audio", "input_audio": str()}:
            return True
    return False


def own_parts(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a part of a server with this API in OpenAI's form."""
    return [_block(each) for each in convertible_parts(parts_in([part]))] if _is_foreign(part) else [part]


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """Return a tool result message."""
    return Message(
        role="tool",
        content=with_error_prefix(text, is_error=is_error),
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
        if call.get("id") is not None:
            require_text(call, "id", what="a tool call")


def _without_rejected(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return the message without what the provider rejects, or None when nothing remains."""
    content = document.get("content")
    if isinstance(content, list):
        kept = [part for part in content if not _is_empty(part)]
        if kept:
            return document if len(kept) == len(content) else {**document, "content": kept}
    elif content is not None:
        return document
    # A result must stay, or its call would have none.
    if document["role"] in ("tool", "function"):
        return {**document, "content": ""}
    if document["role"] == "assistant" and any(document.get(field) for field in INSTEAD_OF_CONTENT):
        # The API refuses an empty list but accepts null next to tool calls.
        return document if content is None else {**document, "content": None}
    return None


def _is_empty(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and not part.get("text")


def _convert(message: Message) -> Iterator[Draft]:
    parts = parts_of(message)
    if message.role == "system":
        role = "developer" if message.extra.get("role") == "developer" else "system"
        yield from _text_draft(role, _text_content(texts_in(parts)))
    elif message.role == "assistant":
        yield from _assistant_drafts(parts)
    else:
        for answer in results_in(parts):
            yield Draft(document=_tool_message(answer), converted=True)
        yield from _user_drafts(parts)


def _text_draft(role: str, content: Any) -> Iterator[Draft]:
    if content:
        yield Draft(document={"role": role, "content": content}, converted=True)


def _assistant_drafts(parts: Sequence[Part]) -> Iterator[Draft]:
    content, calls = _text_content(texts_in(parts)), calls_in(parts)
    if calls:
        document = {
            "role": "assistant",
            "content": content,
            "tool_calls": [_call(call) for call in calls],
        }
        yield Draft(document=document, converted=True)
    else:
        yield from _text_draft("assistant", content)


def _user_drafts(parts: Sequence[Part]) -> Iterator[Draft]:
    images = [block for answer in results_in(parts) for block in _images_of(answer)]
    blocks = images + [_block(part) for part in convertible_parts(parts)]
    if blocks:
        alone = len(blocks) == 1 and blocks[0]["type"] == "text"
        document = {"role": "user", "content": blocks[0]["text"] if alone else blocks}
        yield Draft(document=document, converted=True, trailing=bool(images))


def _tool_message(answer: ToolResult) -> dict[str, Any]:
    words = [_words_of(part) for part in result_parts(answer)]
    return {
        "role": "tool",
        "tool_call_id": answer.call_id,
        "content": with_error_prefix("\n".join(words), is_error=answer.is_error),
    }


def _words_of(part: Convertible) -> str:
    if isinstance(part, Text):
        return part.text
    return "[image: see below]" if isinstance(part, Image) else f"[{part.kind}: see below]"


def _images_of(answer: ToolResult) -> list[dict[str, Any]]:
    images = [_block(part) for part in result_parts(answer) if not isinstance(part, Text)]
    heading = f"Returned by tool call {answer.call_id}:"
    return [{"type": "text", "text": heading}, *images] if images else []


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
    }


def _text_content(words: list[str]) -> str | list[dict[str, Any]] | None:
    if len(words) > 1:
        return [{"type": "text", "text": text} for text in words]
    return words[0] if words else None


def _block(part: Convertible) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Other):
        return _file_block(part)
    detail = {} if part.detail is None else {"detail": part.detail}
    return {"type": "image_url", "image_url": {"url": part.as_url, **detail}}


def _file_block(part: Other) -> dict[str, Any]:
    """Return a PDF or a recording; the API accepts data only."""
    file = part.file
    if file is not None and file.data is not None:
        if file.is_pdf:
            contents = {"filename": file.name or "document.pdf", "file_data": file.as_url}
            return {"type": "file", "file": contents}
        kind = file.media_type.removeprefix("audio/").replace("mpeg", "mp3")
        if kind in ("wav", "mp3"):
            return {"type": "input_audio", "input_audio": {"data": file.data, "format": kind}}
    return {"type": "text", "text": part.text}
