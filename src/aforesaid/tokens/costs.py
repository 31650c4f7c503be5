"""What a message costs, counted once. Below: `messages`, dialects. Above: intake, manager.

The count that was stored with a message holds, also when an estimator has learned since: what it
learned is applied to the count. What has none (a message of a time when another
counter was in use, one that is not stored yet, a part of one that a window shows alone) is counted
when it is first asked for and then remembered in this process, by its content.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from aforesaid.contracts import TokenCounter
from aforesaid.dialects import meaning_of
from aforesaid.model.messages import Message
from aforesaid.tokens.estimate import Estimator
from aforesaid.tokens.messages import count_message, count_words

REMEMBERED = 16_384
"""How many counts are remembered, some 200 bytes each: the reach of four windows."""

LARGEST_BLOCKS = 200_000
"""Characters of blocks up to which their count is remembered. More of them is mostly a picture, which costs
the same whatever its bytes are, and less to count than to recognise."""

Key = tuple[str, bytes]

_remembered: dict[Key, int] = {}


def kept_by(counter: TokenCounter) -> TokenCounter:
    """What makes the counts that are kept: of an estimator, the part that never learns."""
    return counter.uncorrected if isinstance(counter, Estimator) else counter


class Uncounted(Exception):
    """A message has no count, and the counter is not there yet to make one."""


def costs_by(counter: TokenCounter, *, stored_only: bool = False) -> Callable[[Message], int]:
    """What a message costs: as it was counted when it was stored, or else counted once.

    `stored_only`: for a counter that is not loaded yet. What was not counted raises `Uncounted`.
    """
    keeper = kept_by(counter)
    name = keeper.name

    def cost(message: Message) -> int:
        stored = message.tokens.get(name)
        if stored is not None:
            return stored
        if stored_only:
            raise Uncounted
        return _counted_once(keeper, message, name)

    if isinstance(counter, Estimator) and counter.correction != 1.0:
        return lambda message: counter.corrected(cost(message))
    return cost


def count(counter: TokenCounter, message: Message) -> int:
    """What a message costs, counted now, whatever was counted before."""
    if type(message.content) is str and not message.extra:  # most messages: nothing but words
        return count_words(counter, message.role, message.content)
    return count_message(counter, message, meaning_of(message))


def characters_in(value: Any) -> int:
    """About how many characters there are in a message, or in any JSON."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Message):
        return characters_in(value.content) + (characters_in(value.extra) if value.extra else 0)
    if isinstance(value, list | tuple):
        return sum(map(characters_in, value))
    return sum(map(characters_in, value.values())) if isinstance(value, dict) else 1


def _counted_once(counter: TokenCounter, message: Message, name: str) -> int:
    key = _key(name, message)
    known = None if key is None else _remembered.get(key)
    if known is None:
        known = count(counter, message)
        if key is not None:
            _remember(key, known)
    return known


def _key(name: str, message: Message) -> Key | None:
    """Stands for all that costs: the same for the same words, whoever said them when."""
    if not isinstance(message.content, str) and characters_in(message) > LARGEST_BLOCKS:
        return None
    content = () if message.content is msgspec.UNSET else (message.content,)
    try:
        counted = msgspec.json.encode((message.role, message.dialect, content, message.extra))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None  # more than the codec can say, as a number of many digits
    return name, blake2b(counted, digest_size=16).digest()


def _remember(key: Key, known: int) -> None:
    while len(_remembered) >= REMEMBERED:
        _remembered.pop(next(iter(_remembered)), None)
    _remembered[key] = known
