"""Change parts of a message, in any dialect: remove results or thinking, cut an interrupted answer, quote
another agent.

Each function returns a new message, or the same object when nothing changes, so that unchanged content
stays byte-identical.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from aforesaid.dialects import keyed_blocks
from aforesaid.dialects.keyed_blocks import typed
from aforesaid.dialects.parse import (
    CALL_ITEMS,
    TEXT_BLOCKS,
    THINKING_BLOCKS,
    THINKING_FIELDS,
    ToolCall,
    answered_call_id,
    meaning_of,
    parts_of,
)
from aforesaid.model.messages import Message

# Items with an output that may be text. A screenshot's, for example, may not.
_TEXT_OUTPUT_ITEMS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def without_results(message: Message, call_ids: Collection[str]) -> Message | None:
    """Return the message without the results of these calls, or None when nothing remains."""
    return _select_results(message, lambda call_id: call_id not in call_ids, rest=True)


def only_results(message: Message, call_ids: Collection[str]) -> Message | None:
    """Return only the results of these calls, or None when there are none."""
    return _select_results(message, lambda call_id: call_id in call_ids, rest=False)


def with_result_text(message: Message, call_id: str, text: str) -> Message:
    """Return the message with one result's content replaced by text."""
    call_answered = answered_call_id(message)
    if call_answered is None:
        return _with_blocks(message, lambda block: _result_block_with(block, call_id, text))
    if call_answered != call_id:
        return message
    if message.content is not UNSET:
        return message.with_(content=text, tokens={})
    if message.extra.get("type") in _TEXT_OUTPUT_ITEMS:
        return message.with_(extra={**message.extra, "output": text}, tokens={})
    return message


def without_thinking(message: Message) -> Message | None:
    """Return the message without thinking, or None when nothing remains."""
    if message.content is UNSET and message.extra.get("type") == "reasoning":
        return None
    remaining = _filtered(message, lambda block: not _is_thinking(block))
    if (
        remaining is None
        or remaining.role != "assistant"
        or not any(field in remaining.extra for field in THINKING_FIELDS)
    ):
        return remaining
    extra = {field: value for field, value in remaining.extra.items() if field not in THINKING_FIELDS}
    return None if remaining.content is UNSET and not extra else remaining.with_(extra=extra, tokens={})


def _select_results(message: Message, wanted: Callable[[str], bool], *, rest: bool) -> Message | None:
    """Keep the results that `wanted` accepts and, with `rest`, everything that is not a result."""
    call_answered = answered_call_id(message)
    if call_answered is not None:
        return message if wanted(call_answered) else None

    def keep(block: Any) -> bool:
        call_id = _block_result_id(block)
        return rest if call_id is None else wanted(call_id)

    if not isinstance(message.content, list):
        return message if rest else None
    return _filtered(message, keep)


def _block_result_id(block: Any) -> str | None:
    match typed(block) or block:
        case {"type": "tool_result", "tool_use_id": str(call_id)}:
            return call_id
    return None


def _result_block_with(block: Any, call_id: str, text: str) -> Any:
    if _block_result_id(block) != call_id:
        return block
    return {**block, "content": text} if "type" in block else keyed_blocks.with_result_text(block, text)


def _filtered(message: Message, keep: Callable[[Any], bool]) -> Message | None:
    content = message.content
    if not isinstance(content, list) or all(keep(block) for block in content):
        return message
    remaining = [block for block in content if keep(block)]
    return message.with_(content=remaining, tokens={}) if remaining else None


def _with_blocks(message: Message, change: Callable[[Any], Any]) -> Message:
    content = message.content
    if not isinstance(content, list):
        return message
    changed = [change(block) for block in content]
    return message if changed == content else message.with_(content=changed, tokens={})


def _is_thinking(block: Any) -> bool:
    block = typed(block) or block
    return isinstance(block, dict) and str(block.get("type")) in THINKING_BLOCKS


def narrate(message: Message, agent_name: str) -> Message | None:
    """Return the message, quoted as text if another agent wrote it. None if that has no text."""
    if message.role != "assistant" or message.agent_name in (None, agent_name):
        return message
    words = meaning_of(message).text.strip()
    if not words:
        return None
    # A user message: an assistant message would count as this agent's own.
    quoted = f"[{message.agent_name} answered:] {words}"
    return Message(role="user", content=quoted, timestamp=message.timestamp, agent_name=message.agent_name)


# Marks the interruption for the model.
INTERRUPTION_MARK = "[interrupted]"


def cut_at_interruption(message: Message) -> Message:
    """Return the message with an interrupted answer's text cut after the words that were heard.

    Tool calls, thinking and other parts stay, because other messages refer to them.
    """
    speech = message.speech
    if speech is None or speech.heard is None or message.role != "assistant":
        return message
    text = f"{(speech.words_heard or '').rstrip()} {INTERRUPTION_MARK}".lstrip()
    if isinstance(message.content, list):
        return message.with_(content=_heard_blocks(message.content, text), extra=_without_audio(message))
    if message.content is UNSET and isinstance(message.extra.get("type"), str):
        return message  # a Responses API item that is not a message is never spoken
    return message.with_(content=text, extra=_without_audio(message))


def _heard_blocks(blocks: list[Any], text: str) -> list[Any]:
    result: list[Any] = []
    replaced = False
    for block in blocks:
        if not _is_words(block):
            result.append(block)
        elif not replaced:
            result.append(_with_text(block, text))
            replaced = True
    return result


def _is_words(block: Any) -> bool:
    block = typed(block) or block
    return isinstance(block, str) or (
        isinstance(block, dict) and (block.get("type") in TEXT_BLOCKS or block.get("type") == "refusal")
    )


def _with_text(block: Any, text: str) -> Any:
    """Return the block with a new text. Citations and annotations of the old text are removed."""
    if isinstance(block, str):
        return text
    if "type" not in block:
        # A signature next to the text belongs to the old text.
        return keyed_blocks.text_block(text)
    if block["type"] == "refusal":
        return {**block, "refusal": text}
    emptied: dict[str, Any] = {field: [] for field in ("annotations", "logprobs") if field in block}
    result = {field: value for field, value in block.items() if field != "citations"}
    return {**result, "text": text, **emptied}


def _without_audio(message: Message) -> dict[str, Any]:
    """Return the extra fields without the provider's recording, which contains the whole answer."""
    return {field: value for field, value in message.extra.items() if field not in ("audio", "refusal")}


# Make call ids unique within a request, as providers require.
#
# Some models restart their call ids in every answer. Some use an id twice in one answer, or none. The
# second use of an id, and every call without an id, gets a new id in the call and its result. The new id
# depends only on earlier uses in the request, so it stays the same while the conversation grows.


# Prefix of the new id of a call without one.
DEFAULT_ID = "call"


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
    return keyed_blocks.with_call_id(block, assigned.of_call, assigned.of_result)


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
