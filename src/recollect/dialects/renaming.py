"""Call ids that are unique within a request, which providers insist on. Below: edits, reading.

Some models count their calls from one again in every answer. Within one request the second use of
an id gets a name of its own, in the call and in the result behind it. The name depends on nothing
but the uses before it in the request, so it stays while a conversation grows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.dialects.meaning import ToolCall
from recollect.dialects.reading import parts_of
from recollect.messages import Message


def with_distinct_calls(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, no call id used twice; the very same ones where none is."""
    called = [_call_ids(message) for message in messages]
    if max(Counter(call_id for ids in called for call_id in ids).values(), default=1) == 1:
        return messages
    names: dict[str, str] = {}
    taken = {call_id for ids in called for call_id in ids}
    seen = set[str]()
    renamed = []
    for message, ids in zip(messages, called, strict=True):
        for call_id in ids:
            names[call_id] = _unused(call_id, taken) if call_id in seen else call_id
            taken.add(names[call_id])
            seen.add(call_id)
        renamed.append(_with_call_ids(message, names))
    return renamed


def _call_ids(message: Message) -> list[str]:
    if message.role != "assistant":
        return []
    return [part.id for part in parts_of(message) if isinstance(part, ToolCall)]


def _unused(call_id: str, taken: set[str]) -> str:
    number = 2
    while f"{call_id}_{number}" in taken:
        number += 1
    return f"{call_id}_{number}"


def _with_call_ids(message: Message, names: Mapping[str, str]) -> Message:
    content, extra = message.content, message.extra
    if isinstance(content, list):
        content = [_block_with(block, names) for block in content]
    if extra:
        extra = {field: _field_with(field, value, names) for field, value in extra.items()}
    if (content, extra) == (message.content, message.extra):
        return message
    return message.with_(content=content, extra=extra, tokens={})


def _block_with(block: Any, names: Mapping[str, str]) -> Any:
    match block:
        case {"type": "tool_use", "id": str(call_id)}:
            return {**block, "id": names.get(call_id, call_id)}
        case {"type": "tool_result", "tool_use_id": str(call_id)}:
            return {**block, "tool_use_id": names.get(call_id, call_id)}
    return block


def _field_with(field: str, value: Any, names: Mapping[str, str]) -> Any:
    if field in ("tool_call_id", "call_id") and isinstance(value, str):
        return names.get(value, value)
    if field == "tool_calls" and isinstance(value, list):
        return [_call_with(call, names) for call in value]
    return value


def _call_with(call: Any, names: Mapping[str, str]) -> Any:
    match call:
        case {"id": str(call_id)}:
            return {**call, "id": names.get(call_id, call_id)}
    return call
