"""Make call ids unique within a request, as providers require.

Some models restart their call ids in every answer. Some use an id twice in one answer, or none. The second
use of an id, and every call without an id, gets a new id in the call and its result. The new id depends
only on earlier uses in the request, so it stays the same while the conversation grows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aforesaid.dialects.meaning import ToolCall
from aforesaid.dialects.parse import CALL_ITEMS, parts_of
from aforesaid.model.messages import Message

DEFAULT_ID = "call"
"""Prefix of the new id of a call without one."""


def with_unique_call_ids(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with unique, non-empty call ids; the same object when they already are."""
    call_ids = [_call_ids(message) for message in messages]
    uses = Counter(call_id for ids in call_ids for call_id in ids)
    # The usual case: nothing to rename.
    if "" not in uses and max(uses.values(), default=1) == 1:
        return messages
    assigned = _CallIds(uses)
    renamed = []
    for message, ids in zip(messages, call_ids, strict=True):
        assigned.begin(message.role)
        for call_id in ids:
            assigned.add(call_id)
        renamed.append(_with_call_ids(message, assigned))
    return renamed


class _CallIds:
    """Assigns ids to calls and results in their order."""

    def __init__(self, call_ids: Iterable[str]) -> None:
        self._reserved = set(call_ids)
        self._used = {""}
        self._latest: dict[str, str] = {}
        self._of_calls: dict[str, list[str]] = {}
        self._of_results: dict[str, list[str]] = {}
        self._role: str | None = None

    def begin(self, role: str) -> None:
        """Start a message. The results after an answer belong to that answer's calls only."""
        # Some servers restart their ids with each answer.
        if role == "assistant" and self._role != "assistant":
            self._of_results = {}
        self._role, self._of_calls = role, {}

    def add(self, call_id: str) -> None:
        """Assign an id to another call with this original id."""
        name = _unused(call_id, self._reserved) if call_id in self._used else call_id
        self._reserved.add(name)
        self._used.add(call_id)
        self._latest[call_id] = name
        self._of_calls.setdefault(call_id, []).append(name)
        self._of_results.setdefault(call_id, []).append(name)

    def of_call(self, call_id: str) -> str:
        return self._next(self._of_calls, call_id)

    def of_result(self, call_id: str) -> str:
        return self._next(self._of_results, call_id)

    def _next(self, waiting: Mapping[str, list[str]], call_id: str) -> str:
        assigned = waiting.get(call_id)
        return assigned.pop(0) if assigned else self._latest.get(call_id, call_id)


def _call_ids(message: Message) -> list[str]:
    if message.role != "assistant":
        return []
    return [part.id for part in parts_of(message) if isinstance(part, ToolCall)]


def _unused(call_id: str, taken: set[str]) -> str:
    stem, number = call_id or DEFAULT_ID, 2
    while f"{stem}_{number}" in taken:
        number += 1
    return f"{stem}_{number}"


def _with_call_ids(message: Message, assigned: _CallIds) -> Message:
    content, extra = message.content, message.extra
    if isinstance(content, list):
        content = [_block_with(block, assigned) for block in content]
    if extra:
        calls = extra.get("type") in CALL_ITEMS
        extra = {field: _field_with(field, value, assigned, calls=calls) for field, value in extra.items()}
    if (content, extra) == (message.content, message.extra):
        return message
    # A stored count is no longer valid for the changed message.
    return message.with_(content=content, extra=extra, tokens={})


def _block_with(block: Any, assigned: _CallIds) -> Any:
    match block:
        case {"type": "tool_use", "id": str(call_id)}:
            return {**block, "id": assigned.of_call(call_id)}
        case {"type": "tool_result", "tool_use_id": str(call_id)}:
            return {**block, "tool_use_id": assigned.of_result(call_id)}
    return block


def _field_with(field: str, value: Any, assigned: _CallIds, *, calls: bool) -> Any:
    if field in ("tool_call_id", "call_id") and isinstance(value, str):
        return assigned.of_call(value) if calls else assigned.of_result(value)
    if field == "tool_calls" and isinstance(value, list):
        return [_call_with(call, assigned) for call in value]
    return value


def _call_with(call: Any, assigned: _CallIds) -> Any:
    match call:
        case {"id": str(call_id)}:
            return {**call, "id": assigned.of_call(call_id)}
    return call
