"""Remove parts of a message, in any dialect.

Each function returns a new message, or the same object when nothing changes, so that unchanged content
stays byte-identical.
"""

from collections.abc import Callable, Collection
from typing import Any

from msgspec import UNSET

from aforesaid.dialects.parse import THINKING_BLOCKS, THINKING_FIELDS, answered_call_id
from aforesaid.model.messages import Message

_TEXT_OUTPUT_ITEMS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
"""Items with an output that may be text. A screenshot's, for example, may not."""


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
    match block:
        case {"type": "tool_result", "tool_use_id": str(call_id)}:
            return call_id
    return None


def _result_block_with(block: Any, call_id: str, text: str) -> Any:
    return {**block, "content": text} if _block_result_id(block) == call_id else block


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
    return isinstance(block, dict) and str(block.get("type")) in THINKING_BLOCKS
