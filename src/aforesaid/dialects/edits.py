"""Change parts of a message, in any dialect: remove results or thinking, cut an interrupted answer, quote
another agent.

Each function returns a new message, or the same object when nothing changes, so that unchanged content
stays byte-identical.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

from msgspec import UNSET

from aforesaid.dialects import keyed_blocks
from aforesaid.dialects.keyed_blocks import typed
from aforesaid.dialects.parse import (
    TEXT_BLOCKS,
    THINKING_BLOCKS,
    THINKING_FIELDS,
    answered_call_id,
    meaning_of,
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


def name_speaker(message: Message, name: str) -> Message:
    """Return a user's message that begins with the name of the person who wrote it.

    The name is part of the text, because most providers have no field for it and models do not reliably read
    the one that OpenAI has; that one gets it as well.
    """
    if message.role != "user":
        return message
    if isinstance(message.content, str):
        named = message.with_(content=f"[{name}] {message.content}")
    elif isinstance(message.content, list) and (at := _first_words(message.content)) is not None:
        blocks = list(message.content)
        blocks[at] = _with_text(blocks[at], f"[{name}] {_text_in(blocks[at])}")
        named = message.with_(content=blocks)
    else:
        return message
    if named.dialect != "openai_chat" or "name" in named.extra:
        return named
    return named.with_(extra={**named.extra, "name": _name_field(name)})


def _first_words(blocks: list[Any]) -> int | None:
    return next((at for at, block in enumerate(blocks) if _is_words(block)), None)


def _text_in(block: Any) -> str:
    if isinstance(block, str):
        return block
    return str((typed(block) or block).get("text", ""))


def _name_field(name: str) -> str:
    """Return a name in the characters that the API accepts."""
    return re.sub(r"[\s<|\\/>]+", "_", name).strip("_")[:64] or "user"


# The most characters of unheard words in a mark: enough to take them up again.
_UNHEARD_LIMIT = 200


def interruption_mark(unheard: str) -> str:
    """Return the mark of an interruption for the model, with the words that the user did not hear."""
    words = " ".join(unheard.split())
    if not any(map(str.isalnum, words)):
        return "[interrupted]"
    if len(words) > _UNHEARD_LIMIT:
        words = f"{words[:_UNHEARD_LIMIT].rstrip()}…"
    return f'[interrupted; the user did not hear: "{words}"]'


def cut_at_interruption(message: Message, *, with_unheard: bool = True) -> Message:
    """Return the message with an interrupted answer's text cut after the words that were heard, and a mark
    with those that were not.

    Tool calls, thinking and other parts stay, because other messages refer to them.
    """
    speech = message.speech
    if speech is None or speech.heard is None or message.role != "assistant":
        return message
    unheard = (speech.spoken or "")[speech.heard :] if with_unheard else ""
    text = f"{(speech.words_heard or '').rstrip()} {interruption_mark(unheard)}".lstrip()
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
