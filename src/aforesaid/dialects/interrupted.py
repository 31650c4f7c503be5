"""A message as it was heard: an answer that was cut off ends where somebody cut in. Below: reading.

Above: windows. The log keeps all that was generated; a model that is told what nobody heard would
take it for said.
"""

from typing import Any

from msgspec import UNSET

from aforesaid.dialects.parse import TEXT_BLOCKS
from aforesaid.model.messages import Message

CUT_OFF = "[interrupted]"
"""Stands where an answer was cut off, so that a model knows why it ends there."""


def as_heard(message: Message) -> Message:
    """The message, with the words of an interrupted answer up to where it was heard.

    Calls of tools, thinking and everything else stay: they are tied to other messages.
    """
    speech = message.speech
    if speech is None or speech.heard is None or message.role != "assistant":
        return message
    heard = f"{(speech.words_heard or '').rstrip()} {CUT_OFF}".lstrip()
    if isinstance(message.content, list):
        return message.with_(content=_heard_blocks(message.content, heard), extra=_without_audio(message))
    if message.content is UNSET and isinstance(message.extra.get("type"), str):
        return message  # an item of the Responses interface that is no message: nothing was spoken of it
    return message.with_(content=heard, extra=_without_audio(message))


def _heard_blocks(blocks: list[Any], heard: str) -> list[Any]:
    kept: list[Any] = []
    said = False
    for block in blocks:
        if not _is_words(block):
            kept.append(block)
        elif not said:
            kept.append(_with_text(block, heard))
            said = True
    return kept


def _is_words(block: Any) -> bool:
    return isinstance(block, str) or (
        isinstance(block, dict) and (block.get("type") in TEXT_BLOCKS or block.get("type") == "refusal")
    )


def _with_text(block: Any, text: str) -> Any:
    """The block with other words. What pointed into the old ones (citations, marks) points nowhere now."""
    if isinstance(block, str):
        return text
    if block["type"] == "refusal":
        return {**block, "refusal": text}
    pointing: dict[str, Any] = {field: [] for field in ("annotations", "logprobs") if field in block}
    kept = {field: value for field, value in block.items() if field != "citations"}
    return {**kept, "text": text, **pointing}


def _without_audio(message: Message) -> dict[str, Any]:
    """A provider's own recording of the answer holds all of it."""
    return {field: value for field, value in message.extra.items() if field not in ("audio", "refusal")}
