"""Cut an interrupted spoken answer where the user interrupted it.

The log keeps the whole generated answer. The model must see only what the user heard.
"""

from typing import Any

from msgspec import UNSET

from aforesaid.dialects.parse import TEXT_BLOCKS
from aforesaid.model.messages import Message

INTERRUPTION_MARK = "[interrupted]"
"""Marks the interruption for the model."""


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
    return isinstance(block, str) or (
        isinstance(block, dict) and (block.get("type") in TEXT_BLOCKS or block.get("type") == "refusal")
    )


def _with_text(block: Any, text: str) -> Any:
    """Return the block with a new text. Citations and annotations of the old text are removed."""
    if isinstance(block, str):
        return text
    if block["type"] == "refusal":
        return {**block, "refusal": text}
    emptied: dict[str, Any] = {field: [] for field in ("annotations", "logprobs") if field in block}
    result = {field: value for field, value in block.items() if field != "citations"}
    return {**result, "text": text, **emptied}


def _without_audio(message: Message) -> dict[str, Any]:
    """Return the extra fields without the provider's recording, which contains the whole answer."""
    return {field: value for field, value in message.extra.items() if field not in ("audio", "refusal")}
