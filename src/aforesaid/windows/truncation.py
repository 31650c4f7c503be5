"""Tool results made to fit, visibly. Below: dialects. Above: `building`.

The last resort, for a request that would be too large even as the newest step alone: the oldest
tool results in it lose their middle, as little as is needed, and say so in its place.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from aforesaid.dialects import meaning_of, with_result_text
from aforesaid.dialects.parse import text_of
from aforesaid.model.messages import Message

Cost = Callable[[Message], int]


class Shortened(Struct, frozen=True, kw_only=True):
    """Messages, some with shortened results, and the calls whose results these are."""

    messages: tuple[Message, ...]
    call_ids: tuple[str, ...] = ()


def shorten(messages: Sequence[Message], *, cost: Cost, excess: int) -> Shortened:
    """Shorten the oldest tool results until these messages cost `excess` less, or nothing is left to take."""
    fitted = list(messages)
    call_ids: list[str] = []
    for at, message in enumerate(messages):
        for result in meaning_of(message).results if message.role in ("user", "tool") else ():
            if excess <= 0:
                break
            before = cost(fitted[at])
            shorter = _shortened(fitted[at], result.call_id, text_of(result.content), cost, before - excess)
            if cost(shorter) < before:
                fitted[at] = shorter
                excess -= before - cost(shorter)
                call_ids.append(result.call_id)
    return Shortened(messages=tuple(fitted), call_ids=tuple(call_ids))


def _shortened(message: Message, call_id: str, text: str, cost: Cost, target: int) -> Message:
    """The message with as much of this result's text as keeps it at or under the target."""
    most, least = len(text), 0
    while least < most:
        length = (least + most + 1) // 2
        if cost(with_result_text(message, call_id, without_middle(text, length))) <= target:
            least = length
        else:
            most = length - 1
    return with_result_text(message, call_id, without_middle(text, least))


def without_middle(text: str, length: int) -> str:
    """The first and last characters of a text, `length` in all, around a mark that says what is gone."""
    if length >= len(text):
        return text
    head = (length + 1) // 2
    mark = f"[… {len(text) - length} characters left out …]"
    return f"{text[:head]}{mark}{text[len(text) - (length - head) :]}"
