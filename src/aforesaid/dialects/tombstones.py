"""Redact a message in a form that its dialect still accepts.

References between messages stay: types, call ids and tool names. Everything else is removed: text,
arguments, results, images, thinking, personal names and unknown fields.
"""

from typing import Any

from msgspec import UNSET

from aforesaid.dialects import items, keyed_blocks
from aforesaid.dialects.parse import TEXT_BLOCKS
from aforesaid.model.messages import Message

# Replaces the text.
MARK = "[redacted]"
# Tag of a redacted message.
TAG = "redacted"

# Item fields that connect items and contain no content.
_STRUCTURE = frozenset(
    (
        *("type", "id", "call_id", "approval_request_id", "server_label"),
        *("status", "execution", "name", "environment", "detail"),
    )
)


def tombstone_of(message: Message, *, mark: str = MARK) -> Message:
    """Return the tombstone of a message, with `mark` as its text."""
    content, extra = _redacted(message, mark)
    if content is UNSET and not extra:
        content = mark
    tags = message.tags if TAG in message.tags else (*message.tags, TAG)
    return message.with_(content=content, extra=extra, tags=tags, speech=None, tokens={})


def _redacted(message: Message, mark: str) -> tuple[Any, dict[str, Any]]:
    if message.content is UNSET and isinstance(message.extra.get("type"), str):
        return _blank_item(message.extra, mark)
    extra = _blank_fields(message, mark)
    if message.content is None or message.content is UNSET:
        return (message.content if extra else mark), extra
    if isinstance(message.content, list) and message.role != "tool":
        return _blank_blocks(message, mark), extra
    return mark, extra


# Items of the Responses API


def _blank_item(item: dict[str, Any], mark: str) -> tuple[Any, dict[str, Any]]:
    if not (items.is_call(item) or items.is_answer(item)):
        return mark, {"type": "message"}
    kept = {field: value for field, value in item.items() if field in _STRUCTURE and isinstance(value, str)}
    if items.is_answer(item):
        call_id = items.call_id_of(item) or ""
        blank = items.answer_to({"type": items.answered_call_type(item)}, call_id=call_id, text=mark)
        # The decision stays, because the call behind it ran or did not.
        decision = {"approve": item["approve"]} if isinstance(item.get("approve"), bool) else {}
        return UNSET, {**blank, **kept, **decision}
    content = {
        field: _blank_arguments(str(item["type"]), value, mark)
        for field, value in item.items()
        if field in _CONTENT_FIELDS
    }
    return UNSET, kept | content


_CONTENT_FIELDS = frozenset(("arguments", "input", "action", "actions", "operation"))


def _blank_arguments(kind: str, arguments: Any, mark: str) -> Any:
    if kind in ("function_call", "mcp_approval_request"):
        # Providers parse the arguments: they must stay valid JSON.
        return "{}" if isinstance(arguments, str) else {}
    return _blank_value(arguments, mark)


def _blank_value(value: Any, mark: str) -> Any:
    """Return a value of the same shape without content. An action keeps its `type`, which is required."""
    match value:
        case str():
            return mark
        case dict():
            return {
                key: inner if key == "type" and isinstance(inner, str) else _blank_value(inner, mark)
                for key, inner in value.items()
            }
        case list():
            return [_blank_value(inner, mark) for inner in value]
        case bool():
            return False
        case int() | float():
            return 0
    return None


# Blocks


def _blank_blocks(message: Message, mark: str) -> list[Any]:
    kept = [blank for block in message.content if (blank := _blank_block(block, mark)) is not None]
    words = [block for block in message.content if not _is_tied(block)]
    if words or not kept:
        place = next((at for at, block in enumerate(message.content) if not _is_tied(block)), 0)
        before = sum(_is_tied(block) for block in message.content[:place])
        # One mark in the place of the first removed block.
        kept.insert(before, _text_block(message, mark))
    return kept


def _is_tied(block: Any) -> bool:
    block = keyed_blocks.typed(block) or block
    return isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result")


def _blank_block(block: Any, mark: str) -> Any:
    match block:
        case {"type": "tool_use", "id": call_id, "name": name}:
            return {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        case {"type": "tool_result", "tool_use_id": call_id, **rest}:
            failed = {"is_error": True} if rest.get("is_error") is True else {}
            return {"type": "tool_result", "tool_use_id": call_id, "content": mark, **failed}
    return keyed_blocks.blank(block, mark)


def _text_block(message: Message, mark: str) -> dict[str, Any]:
    if message.dialect in keyed_blocks.KEYED_DIALECTS:
        return keyed_blocks.text_block(mark)
    return {"type": _text_type(message), "text": mark}


def _text_type(message: Message) -> str:
    found = [
        block["type"]
        for block in message.content
        if isinstance(block, dict) and block.get("type") in TEXT_BLOCKS
    ]
    if found:
        return str(found[0])
    if message.dialect == "openai_responses":
        return "output_text" if message.role == "assistant" else "input_text"
    return "text"


# Extra fields


def _blank_fields(message: Message, mark: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for field, value in message.extra.items():
        if field in ("type", "status", "tool_call_id") and isinstance(value, str):
            kept[field] = value
        elif field == "name" and message.role == "tool" and isinstance(value, str):
            kept[field] = value  # a tool's name, not a person's
        elif field == "is_error" and isinstance(value, bool):
            kept[field] = value
        elif message.role == "assistant":
            kept |= _blank_calls(field, value, mark)
    return kept


def _blank_calls(field: str, value: Any, mark: str) -> dict[str, Any]:
    if field == "tool_calls" and isinstance(value, list):
        # Ids and names of calls stay, so that the log remains a valid request.
        calls = [blank for call in value if (blank := _blank_call(call, mark)) is not None]
        return {"tool_calls": calls} if calls else {}
    match field, value:
        case "function_call", {"name": str(name)}:
            return {"function_call": {"name": name, "arguments": "{}"}}
    return {}


def _blank_call(call: Any, mark: str) -> Any:
    match call:
        case {"id": str(call_id), "function": {"name": str(name)}, **rest}:
            kind = {"type": rest["type"]} if isinstance(rest.get("type"), str) else {}
            return {"id": call_id, **kind, "function": {"name": name, "arguments": "{}"}}
        case {"id": str(call_id), "custom": {"name": str(name)}, **rest}:
            return {"id": call_id, "type": "custom", "custom": {"name": name, "input": mark}}
        case {"id": str(call_id), "name": str(name)}:
            return {"id": call_id, "name": name, "arguments": {}}
    return None
