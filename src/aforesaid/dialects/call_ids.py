"""Call ids that are unique within a request, which providers insist on. Below: edits, reading.

Some models count their calls from one again in every answer; some give two calls of one answer the same id,
or none. Within one request the second use of an id gets a name of its own, in the call and in the result
behind it, and so does every call without one. The name depends on nothing but the uses before it in the
request, so it stays while a conversation grows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aforesaid.dialects.meaning import ToolCall
from aforesaid.dialects.parse import CALL_ITEMS, parts_of
from aforesaid.model.messages import Message

NAMELESS = "call"
"""What the name of a call without an id begins with."""


def with_distinct_calls(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, no call id used twice or empty; the very same ones where none is."""
    called = [_call_ids(message) for message in messages]
    uses = Counter(call_id for ids in called for call_id in ids)
    if "" not in uses and max(uses.values(), default=1) == 1:
        return messages
    names = _Names(uses)
    renamed = []
    for message, ids in zip(messages, called, strict=True):
        names.begin(message.role)
        for call_id in ids:
            names.give(call_id)
        renamed.append(_with_call_ids(message, names))
    return renamed


class _Names:
    """The names of calls, in the order in which calls and results stand."""

    def __init__(self, call_ids: Iterable[str]) -> None:
        self._taken = set(call_ids)
        self._seen = {""}
        self._latest: dict[str, str] = {}
        self._of_calls: dict[str, list[str]] = {}
        self._of_results: dict[str, list[str]] = {}
        self._role: str | None = None

    def begin(self, role: str) -> None:
        """A message begins. Calls of one answer wait for their results together; another answer is apart."""
        if role == "assistant" and self._role != "assistant":
            self._of_results = {}
        self._role, self._of_calls = role, {}

    def give(self, call_id: str) -> None:
        """One more call has this id."""
        name = _unused(call_id, self._taken) if call_id in self._seen else call_id
        self._taken.add(name)
        self._seen.add(call_id)
        self._latest[call_id] = name
        self._of_calls.setdefault(call_id, []).append(name)
        self._of_results.setdefault(call_id, []).append(name)

    def of_call(self, call_id: str) -> str:
        return self._next(self._of_calls, call_id)

    def of_result(self, call_id: str) -> str:
        return self._next(self._of_results, call_id)

    def _next(self, waiting: Mapping[str, list[str]], call_id: str) -> str:
        names = waiting.get(call_id)
        return names.pop(0) if names else self._latest.get(call_id, call_id)


def _call_ids(message: Message) -> list[str]:
    if message.role != "assistant":
        return []
    return [part.id for part in parts_of(message) if isinstance(part, ToolCall)]


def _unused(call_id: str, taken: set[str]) -> str:
    stem, number = call_id or NAMELESS, 2
    while f"{stem}_{number}" in taken:
        number += 1
    return f"{stem}_{number}"


def _with_call_ids(message: Message, names: _Names) -> Message:
    content, extra = message.content, message.extra
    if isinstance(content, list):
        content = [_block_with(block, names) for block in content]
    if extra:
        calls = extra.get("type") in CALL_ITEMS
        extra = {field: _field_with(field, value, names, calls=calls) for field, value in extra.items()}
    if (content, extra) == (message.content, message.extra):
        return message
    return message.with_(content=content, extra=extra, tokens={})


def _block_with(block: Any, names: _Names) -> Any:
    match block:
        case {"type": "tool_use", "id": str(call_id)}:
            return {**block, "id": names.of_call(call_id)}
        case {"type": "tool_result", "tool_use_id": str(call_id)}:
            return {**block, "tool_use_id": names.of_result(call_id)}
    return block


def _field_with(field: str, value: Any, names: _Names, *, calls: bool) -> Any:
    if field in ("tool_call_id", "call_id") and isinstance(value, str):
        return names.of_call(value) if calls else names.of_result(value)
    if field == "tool_calls" and isinstance(value, list):
        return [_call_with(call, names) for call in value]
    return value


def _call_with(call: Any, names: _Names) -> Any:
    match call:
        case {"id": str(call_id)}:
            return {**call, "id": names.of_call(call_id)}
    return call
