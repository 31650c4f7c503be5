"""What a message costs, counted once. Below: `messages`, dialects. Above: intake, manager.

The count that was stored with a message holds. What has none (a message of a time when another
counter was in use, one that is not stored yet, a part of one that a window shows alone) is counted
when it is first asked for and then remembered in this process, by its content.
"""

from collections.abc import Callable
from hashlib import blake2b

import msgspec

from recollect.contracts import TokenCounter
from recollect.dialects import meaning_of
from recollect.messages import Message
from recollect.tokens.messages import count_message, count_words

REMEMBERED = 16_384
"""How many counts are remembered, some 200 bytes each: the reach of four windows."""

Key = tuple[str, bytes]

_remembered: dict[Key, int] = {}


def costs_by(counter: TokenCounter) -> Callable[[Message], int]:
    """What a message costs: as it was counted when it was stored, or else counted once."""
    name = counter.name

    def cost(message: Message) -> int:
        stored = message.tokens.get(name)
        return _counted_once(counter, message, name) if stored is None else stored

    return cost


def count(counter: TokenCounter, message: Message) -> int:
    """What a message costs, counted now, whatever was counted before."""
    if type(message.content) is str and not message.extra:  # most messages: nothing but words
        return count_words(counter, message.role, message.content)
    return count_message(counter, message, meaning_of(message))


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
