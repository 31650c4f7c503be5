"""Ids of tool calls in a request: unique, and of a form that the provider accepts.

Some models restart their call ids in every answer. Some use an id twice in one answer, or none. The second
use of an id, and every call without an id, gets a new id in the call and its result. An id that the provider
refuses (characters, length) is replaced by a hash of it. A new id depends only on earlier uses in the
request, so it stays the same while the conversation grows.

OpenAI's deprecated function calls and Ollama's calls have no ids and are answered by name. They get ids here.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from aforesaid.dialects import items, keyed_blocks
from aforesaid.dialects.conversion import ANY_ID, CallIdRule, is_native
from aforesaid.dialects.parse import ToolCall, answered_call_id, parts_of
from aforesaid.model.messages import Message, only_text

# Prefix of the new id of a call without one.
DEFAULT_ID = "call"


def with_valid_call_ids(
    messages: Sequence[Message], rule: CallIdRule = ANY_ID, dialect: str | None = None
) -> tuple[Sequence[Message], int]:
    """Return the messages with valid call ids, and how many ids the provider would have refused.

    The messages are the same object when nothing changes. Without a dialect, every id counts as its own.
    """
    calls = [_call_ids(message) for message in messages]
    uses = Counter(call_id for ids in calls for call_id in ids)
    own = {
        call_id
        for message, ids in zip(messages, calls, strict=True)
        if ids and (dialect is None or is_native(message, dialect))
        for call_id in ids
    }
    refused = {call_id for call_id in uses if not rule.accepts(call_id, is_own=call_id in own)}
    # The usual case: nothing to rename.
    if not refused and max(uses.values(), default=1) == 1 and not any(map(_answers_by_name, messages)):
        return messages, 0
    assigned = _CallIds(uses, refused, rule)
    renamed = []
    for message, ids in zip(messages, calls, strict=True):
        assigned.begin(message.role)
        for call_id in ids:
            assigned.add(call_id)
        renamed.append(_with_call_ids(message, assigned))
    return renamed, len(refused - {""})


class _CallIds:
    """Assigns ids to calls and results in their order."""

    def __init__(self, call_ids: Iterable[str], refused: set[str], rule: CallIdRule) -> None:
        self._reserved = set(call_ids)
        self._refused = refused
        self._length = rule.letters_and_digits
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
        name = self._hashed(call_id) if call_id in self._refused and call_id else call_id
        # Short hashes can be equal.
        if call_id in self._used or (name != call_id and name in self._reserved):
            name = self._unused(name)
        self._reserved.add(name)
        self._used.add(call_id)
        self._latest[call_id] = name
        self._of_calls.setdefault(call_id, []).append(name)
        self._of_results.setdefault(call_id, []).append(name)

    def _hashed(self, call_id: str) -> str:
        return _hashed(call_id) if self._length is None else _digest(call_id)[: self._length]

    def _unused(self, call_id: str) -> str:
        # The number must not make the id longer than providers accept.
        stem, number = (call_id if len(call_id) <= 36 else _hashed(call_id)) or DEFAULT_ID, 2
        while (name := self._numbered(stem, number)) in self._reserved:
            number += 1
        return name

    def _numbered(self, stem: str, number: int) -> str:
        name = f"{stem}_{number}"
        return name if self._length is None else self._hashed(name)

    def of_call(self, call_id: str) -> str:
        return self._next(self._of_calls, call_id)

    def of_result(self, call_id: str) -> str:
        return self._next(self._of_results, call_id)

    def _next(self, waiting: Mapping[str, list[str]], call_id: str) -> str:
        assigned = waiting.get(call_id)
        return assigned.pop(0) if assigned else self._latest.get(call_id, call_id)


def _call_ids(message: Message) -> list[str]:
    if message.role != "assistant" or only_text(message) is not None:
        return []
    return [part.id for part in parts_of(message) if isinstance(part, ToolCall)]


def _hashed(call_id: str) -> str:
    # A hash gives call and result the same new id without any shared state.
    return f"call_{_digest(call_id)[:24]}"


def _digest(call_id: str) -> str:
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()


def _with_call_ids(message: Message, assigned: _CallIds) -> Message:
    content, extra = message.content, message.extra
    if isinstance(content, list):
        content = [_block_with(block, assigned) for block in content]
    if extra:
        is_item = content is UNSET and isinstance(extra.get("type"), str)
        extra = _item_with(extra, assigned) if is_item else _fields_with(message, assigned)
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
    return keyed_blocks.with_call_id(block, assigned.of_call, assigned.of_result)


def _item_with(item: dict[str, Any], assigned: _CallIds) -> dict[str, Any]:
    """Return an item of the Responses API with its assigned id."""
    call_id = items.call_id_of(item)
    if call_id is None or not (items.is_call(item) or items.is_answer(item)):
        return item
    of = assigned.of_call if items.is_call(item) else assigned.of_result
    return {**item, items.id_field(item): of(call_id)}


def _fields_with(message: Message, assigned: _CallIds) -> dict[str, Any]:
    extra = {name: _field_with(name, value, assigned) for name, value in message.extra.items()}
    if not _answers_by_name(message):
        return extra
    if message.role == "tool":
        name = answered_call_id(message) or ""
        kept = {field: value for field, value in extra.items() if field not in ("name", "tool_name", "role")}
        return {**kept, "tool_call_id": assigned.of_result(name)}
    function = extra.get("function_call")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return extra
    del extra["function_call"]
    call = {"id": assigned.of_call(function["name"]), "type": "function", "function": function}
    calls = extra.get("tool_calls")
    return {**extra, "tool_calls": [*(calls if isinstance(calls, list) else ()), call]}


def _answers_by_name(message: Message) -> bool:
    """Return whether this is a call without an id in OpenAI's chat API, or the result of one."""
    extra = message.extra
    if not extra or message.dialect != "openai_chat":
        return False
    if message.role == "tool":
        return "tool_call_id" not in extra and answered_call_id(message) is not None
    if message.role != "assistant":
        return False
    calls = extra.get("tool_calls")
    documents = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    without_id = any(not isinstance(call.get("id"), str) for call in documents)
    return without_id or isinstance(extra.get("function_call"), dict)


def _field_with(field: str, value: Any, assigned: _CallIds) -> Any:
    if field in ("tool_call_id", "call_id") and isinstance(value, str):
        return assigned.of_result(value)
    if field == "tool_calls" and isinstance(value, list):
        return [_call_with(call, assigned) for call in value]
    return value


def _call_with(call: Any, assigned: _CallIds) -> Any:
    match call:
        case {"id": str(call_id)}:
            return {**call, "id": assigned.of_call(call_id)}
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
            return {**call, "id": assigned.of_call(name)}
    return call
