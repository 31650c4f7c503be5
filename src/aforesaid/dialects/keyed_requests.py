"""Render a request in a dialect of keyed blocks (Gemini, Bedrock).

Their rules for the order of roles, calls and results are those of Anthropic's Messages API, so its renderer
orders and merges the messages. A native block passes through it inside a typed one, under `NATIVE`, and comes
out unchanged. Blocks of other dialects come out typed, and the caller converts them.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from aforesaid.dialects import anthropic
from aforesaid.dialects.citations import anthropic_search_result
from aforesaid.dialects.conversion import is_native
from aforesaid.dialects.keyed_blocks import typed
from aforesaid.dialects.parse import Other, Text
from aforesaid.model.messages import Message, Role

NATIVE = "aforesaid_native"
FILE = "aforesaid_file"
"""The type of a block with a file of any media type."""
CITED = "aforesaid_cited"
"""The citations of a text."""
ROLES: dict[str, Role] = {"user": "user", "model": "assistant", "function": "user", "assistant": "assistant"}

_FOREIGN = "foreign"
"""A dialect that no renderer has, so that Anthropic's converts the message."""


class KeyedMessage(Struct, frozen=True):
    """A message of a request: its role, its blocks, and the other fields of a native message."""

    role: Role
    blocks: list[dict[str, Any]]
    fields: dict[str, Any]


class KeyedRequest(Struct, frozen=True, kw_only=True):
    """Messages in order, alternating between the roles, and the texts of the system prompt."""

    messages: list[KeyedMessage]
    system: list[str]


def arrange(messages: Sequence[Message], dialect: str) -> KeyedRequest:
    """Order and merge the messages. Their blocks are typed; a native block is under `NATIVE`."""
    request = anthropic.write(
        [_prepared(message, dialect) for message in messages], files=_file_block, texts=_text_block
    )
    merged: list[KeyedMessage] = []
    for document in request.messages:
        fields = {name: value for name, value in document.items() if name not in ("role", "content")}
        message = KeyedMessage(ROLES[document["role"]], _blocks(document["content"]), fields)
        if merged and merged[-1].role == message.role:
            merged[-1] = _joined(merged[-1], message)
        else:
            merged.append(message)
    return KeyedRequest(messages=merged, system=_texts(request.system))


def _prepared(message: Message, dialect: str) -> Message:
    if message.role == "system" or not is_native(message, dialect) or isinstance(message.content, str):
        return message.with_(dialect=_FOREIGN)
    blocks = [_wrapped(block) for block in message.content]
    extra = {name: value for name, value in message.extra.items() if name != "role"}
    return message.with_(dialect=anthropic.NAME, content=blocks, extra=extra)


def _wrapped(block: dict[str, Any]) -> dict[str, Any]:
    form = typed(block)
    # An unknown block, and a text that only carries a signature, must not look like blank text.
    if form is None or (form["type"] == "text" and not form["text"].strip() and len(block) > 1):
        form = {"type": "unknown"}
    return {**form, NATIVE: block}


def _file_block(part: Other) -> dict[str, Any]:
    """Return a file of any type, for the caller to convert."""
    file = part.file
    if part.search_result is not None:
        return {**anthropic_search_result(part.search_result), "text": part.text}
    if file is None:
        return {"type": "text", "text": part.text}
    source = {"type": "base64", "media_type": file.media_type, "data": file.data}
    if file.data is None:
        source = {"type": "url", "media_type": file.media_type, "url": file.url}
    return {"type": FILE, "source": source, "text": part.text, **({"title": file.name} if file.name else {})}


def _text_block(text: Text) -> dict[str, Any]:
    """Return a text of an answer with its citations, for the caller to convert."""
    return {"type": "text", "text": text.text, **({CITED: text.citations} if text.citations else {})}


def _joined(first: KeyedMessage, second: KeyedMessage) -> KeyedMessage:
    """Join two messages of one role. Results come first and calls last; the sort is stable."""
    order = {"tool_result": 0, "tool_use": 2}
    blocks = sorted([*first.blocks, *second.blocks], key=lambda block: order.get(str(block.get("type")), 1))
    return KeyedMessage(first.role, blocks, first.fields | second.fields)


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _texts(system: Any) -> list[str]:
    return [str(block["text"]) for block in _blocks(system) if block.get("text")] if system else []
