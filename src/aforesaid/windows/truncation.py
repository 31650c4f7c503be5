"""Shorten tool results visibly.

The last resort for a request that is too large even with only the newest step: the oldest tool results
lose their middle, as little as necessary, with a mark in its place.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from aforesaid.dialects import meaning_of, with_result_text
from aforesaid.dialects.parse import text_of
from aforesaid.model.messages import Message

Cost = Callable[[Message], int]


class ShortenedMessages(Struct, frozen=True, kw_only=True):
    """Messages after shortening, with the call ids of the shortened results."""

    messages: tuple[Message, ...]
    call_ids: tuple[str, ...] = ()


def shorten(messages: Sequence[Message], *, cost: Cost, excess: int) -> ShortenedMessages:
    """Shorten the oldest tool results until the messages cost `excess` less or no result is left."""
    fitted = list(messages)
    call_ids: list[str] = []
    for at, message in enumerate(messages):
        for result in meaning_of(message).results if message.role in ("user", "tool") else ():
            if excess <= 0:
                break
            before = cost(fitted[at])
            shorter = _fit_result(fitted[at], result.call_id, text_of(result.content), cost, before - excess)
            # The mark itself costs tokens: a short result can become longer by shortening.
            if cost(shorter) < before:
                fitted[at] = shorter
                excess -= before - cost(shorter)
                call_ids.append(result.call_id)
    return ShortenedMessages(messages=tuple(fitted), call_ids=tuple(call_ids))


def _fit_result(message: Message, call_id: str, text: str, cost: Cost, target: int) -> Message:
    """Return the message with as much of this result's text as fits the target cost."""
    most, least = len(text), 0
    while least < most:
        # Tokens do not grow evenly with characters, so the length is found by bisection.
        length = (least + most + 1) // 2
        if cost(with_result_text(message, call_id, without_middle(text, length))) <= target:
            least = length
        else:
            most = length - 1
    return with_result_text(message, call_id, without_middle(text, least))


def without_middle(text: str, length: int) -> str:
    """Return the first and last characters of a text, `length` in total, around a mark."""
    if length >= len(text):
        return text
    head = (length + 1) // 2
    mark = f"[… {len(text) - length} characters left out …]"
    return f"{text[:head]}{mark}{text[len(text) - (length - head) :]}"
