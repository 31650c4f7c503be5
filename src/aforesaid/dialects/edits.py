"""Taking something out of a message, whatever dialect it speaks. Below: reading. Above: windows, writers.

Each function gives a new message; where nothing had to change it gives the very one it was handed,
so that what is kept stays byte for byte.
"""

from collections.abc import Callable, Collection
from typing import Any

from msgspec import UNSET

from aforesaid.dialects.parse import THINKING_BLOCKS, THINKING_FIELDS, answered_by
from aforesaid.model.messages import Message

_TEXT_OUTPUT_ITEMS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
"""Items whose output may be text; a screenshot's, say, may not."""


def without_results(message: Message, call_ids: Collection[str]) -> Message | None:
    """The message without the results of these calls; None when nothing is left of it."""
    return _chosen_results(message, lambda call_id: call_id not in call_ids, rest=True)


def only_results(message: Message, call_ids: Collection[str]) -> Message | None:
    """Only the results of these calls, without all else; None when there are none."""
    return _chosen_results(message, lambda call_id: call_id in call_ids, rest=False)


def with_result_text(message: Message, call_id: str, text: str) -> Message:
    """The message with the content of one result replaced by text; without such a result, as it is."""
    answered = answered_by(message)
    if answered is None:
        return _with_blocks(message, lambda block: _result_block_with(block, call_id, text))
    if answered != call_id:
        return message
    if message.content is not UNSET:
        return message.with_(content=text, tokens={})
    if message.extra.get("type") in _TEXT_OUTPUT_ITEMS:
        return message.with_(extra={**message.extra, "output": text}, tokens={})
    return message


def without_thinking(message: Message) -> Message | None:
    """The message without a model's thinking; None when it was nothing else."""
    if message.content is UNSET and message.extra.get("type") == "reasoning":
        return None
    kept = _filtered(message, lambda block: not _is_thinking(block))
    if kept is None or kept.role != "assistant" or not any(field in kept.extra for field in THINKING_FIELDS):
        return kept
    extra = {field: value for field, value in kept.extra.items() if field not in THINKING_FIELDS}
    return None if kept.content is UNSET and not extra else kept.with_(extra=extra, tokens={})


def _chosen_results(message: Message, wanted: Callable[[str], bool], *, rest: bool) -> Message | None:
    """The message with the results that are wanted, and with `rest` all that is no result."""
    answered = answered_by(message)
    if answered is not None:
        return message if wanted(answered) else None

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
    kept = [block for block in content if keep(block)]
    return message.with_(content=kept, tokens={}) if kept else None


def _with_blocks(message: Message, change: Callable[[Any], Any]) -> Message:
    content = message.content
    if not isinstance(content, list):
        return message
    changed = [change(block) for block in content]
    return message if changed == content else message.with_(content=changed, tokens={})


def _is_thinking(block: Any) -> bool:
    return isinstance(block, dict) and str(block.get("type")) in THINKING_BLOCKS
