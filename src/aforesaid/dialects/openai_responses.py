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

A reasoning item belongs to the item after it. A reasoning item without a following item of the model (a
truncated answer, or one that was changed and has no id) is rejected by the provider and left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from aforesaid.dialects import items
from aforesaid.dialects.citations import annotations
from aforesaid.dialects.conversion import (
    SUMMARIES,
    CallIdRule,
    Convertible,
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
from aforesaid.dialects.items import Item
from aforesaid.dialects.parse import (
    Other,
    Part,
    Request,
    Text,
    ToolCall,
    ToolResult,
    is_blank,
    parts_of,
    text_of,
)
from aforesaid.errors import InvalidMessage
from aforesaid.model.messages import Message, Role

NAME = "openai_responses"
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
CALL_IDS = CallIdRule(max_length=64)

_REQUIRED = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id",),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id",),
}


def read_one(document: dict[str, Any]) -> Message:
    """Parse one item of the `input` or `output` list."""
    if document.get("type") in ("message", None) and ("role" in document or "content" in document):
        role, content, extra = split_fields(document, ROLES, dialect=NAME)
        check_content(content, dialect=NAME)
        return Message(role=role, content=content, dialect=NAME, extra=extra)
    # A reference to an item may have null as its type.
    kind = document.get("type")
    if not isinstance(kind, str | None) or not (kind or document.get("id")):
        raise InvalidMessage(
            "an item needs a role and content, or a type, or an id to refer to", field="type"
        )
    for field in _REQUIRED.get(str(document.get("type")), ()):
        require_text(document, field, what=f"a {document['type']} item")
    return Message(role=_item_role(document), content=UNSET, dialect=NAME, extra=dict(document))


def write(messages: Sequence[Message]) -> Request:
    """Render the `input` of a request."""
    documents: list[Item] = []
    for message in messages:
        if is_native(message, NAME):
            if message.content is not None and message.content != []:
                documents.append(_with_accepted_files(verbatim(message)))
        else:
            documents.extend(_convert(message))
    return Request(messages=_without_dangling_reasoning(_with_matching_outputs(documents)))


def result(*, call_id: str, name: str, text: str, is_error: bool) -> Message:
    """Return a tool result message."""
    output = with_error_prefix(text, is_error=is_error)
    item = {"type": "function_call_output", "call_id": call_id, "output": output}
    return Message(role="tool", dialect=NAME, extra=item)


def _with_accepted_files(item: Item) -> Item:
    """Return the item with recordings and films described as text: the provider refuses them as files."""
    refused = {
        field: [_accepted(block) for block in item[field]]
        for field in ("content", "output")
        if isinstance(item.get(field), list) and any(map(_is_refused_file, item[field]))
    }
    return {**item, **refused} if refused else item


def _is_refused_file(block: Any) -> bool:
    match block:
        case {"type": "input_file", "file_data": str(url)}:
            return url.startswith(("data:audio/", "data:video/"))
    return False


def _accepted(block: Any) -> Any:
    if not _is_refused_file(block):
        return block
    return {"type": "input_text", "text": f"[{block.get('filename') or 'recording'}]"}


def _is_from_model(item: Item) -> bool:
    return item["role"] == "assistant" if "role" in item else items.is_from_model(item)


def _item_role(item: dict[str, Any]) -> Role:
    if "role" in item:
        return ROLES.get(str(item["role"]), "assistant")
    return "assistant" if items.is_from_model(item) else "tool"


def _with_matching_outputs(documents: list[Item]) -> list[Item]:
    """Give each result the type that its call needs, which the result's author may not know."""
    calls = {
        items.call_id_of(item): item
        for item in documents
        if items.is_call(item) and item["type"] != "function_call"
    }
    return [_matching(item, calls) for item in documents] if calls else documents


def _matching(item: Item, calls: Mapping[str | None, Item]) -> Item:
    call = calls.get(item.get("call_id")) if item.get("type") == "function_call_output" else None
    if call is None or call["type"] == "tool_search_call":  # whose result may also be a function's
        return item
    if call["type"] == "custom_tool_call":
        return {**item, "type": "custom_tool_call_output"}
    return items.answer_to(call, call_id=item["call_id"], text=text_of(item.get("output")))


def _without_dangling_reasoning(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    has_successor = False
    for item in reversed(items):
        if item.get("type") != "reasoning":
            # A message without an id is not the one that the model wrote after its reasoning.
            has_successor = _is_from_model(item) and ("role" not in item or bool(item.get("id")))
        elif not has_successor:
            continue
        kept.append(item)
    return kept[::-1]


def _convert(message: Message) -> Iterator[dict[str, Any]]:
    parts = parts_of(message)
    if message.role == "system":
        role = "developer" if message.extra.get("role") == "developer" else "system"
        yield from _message(role, "\n\n".join(texts_in(parts)))
    elif message.role == "assistant":
        yield from _assistant_items(parts)
    else:
        yield from (_output(answer) for answer in results_in(parts))
        yield from _message("user", _content(convertible_parts(parts)))


def _message(role: str, content: Any) -> Iterator[dict[str, Any]]:
    if content:
        yield {"role": role, "content": content}


def _assistant_items(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """Yield texts and calls in order; adjacent texts form one message."""
    words, cited = "", list[dict[str, Any]]()
    for part in parts:
        if isinstance(part, Text):
            cited += annotations(part.citations, start=len(words), end=len(words) + len(part.text))
            words += part.text
        elif isinstance(part, Other) and part.kind in SUMMARIES:
            words += f"{part.text}\n\n"
        elif isinstance(part, ToolCall):
            yield from _answer(words, cited)
            words, cited = "", []
            yield _call(part)
    yield from _answer(words, cited)


def _answer(words: str, cited: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    text = {"type": "output_text", "text": words, "annotations": cited}
    yield from _message("assistant", "" if is_blank(words) else [text] if cited else words)


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments_text(call.arguments),
    }


def _output(answer: ToolResult) -> dict[str, Any]:
    parts = result_parts(answer)
    if answer.is_error:
        parts = _with_error_text(parts)
    return {
        "type": "function_call_output",
        "call_id": answer.call_id,
        "output": _content(parts),
    }


def _with_error_text(parts: list[Convertible]) -> list[Convertible]:
    first = parts[0] if parts else None
    if isinstance(first, Text):
        return [Text(with_error_prefix(first.text, is_error=True)), *parts[1:]]
    return [Text(with_error_prefix("", is_error=True)), *parts]


def _content(parts: Sequence[Convertible]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in parts) and len(parts) < 2:
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [_block(part) for part in parts]


def _block(part: Convertible) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Other):
        return _file_block(part)
    return {"type": "input_image", "image_url": part.as_url, "detail": part.detail or "auto"}


def _file_block(part: Other) -> dict[str, Any]:
    """Return a PDF, which is the only file that every model reads."""
    file = part.file
    if file is None or not file.is_pdf:
        return {"type": "input_text", "text": part.text}
    if file.data is None:
        return {"type": "input_file", "file_url": file.url}
    return {"type": "input_file", "filename": file.name or "document.pdf", "file_data": file.as_url}
