"""The token count of a message, counted once.

A count stored with a message stays valid when an estimator learns: the correction is applied to it. Other
messages (stored under another counter, not stored yet, or partially shown in a window) are counted on
demand and cached in this process by content.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import TokenCounter
from aforesaid.dialects import meaning_of
from aforesaid.model.messages import Message, plain_text
from aforesaid.tokens.estimate import Estimator
from aforesaid.tokens.messages import count_message, count_plain_text

CACHE_SIZE = 16_384
"""Maximum number of cached counts, about 200 bytes each: enough for four windows."""

LARGEST_BLOCKS = 200_000
"""Characters of blocks up to which a count is cached. Larger content is mostly an image, which has a fixed
cost and is cheaper to count than to hash.
"""

Key = tuple[str, bytes]

_cache: BoundedDict[Key, int] = BoundedDict(CACHE_SIZE)


def storable_counter(counter: TokenCounter) -> TokenCounter:
    """Return the counter for stored counts: an estimator's uncorrected part, which never changes."""
    return counter.uncorrected if isinstance(counter, Estimator) else counter


class NotCounted(Exception):
    """The message has no stored count, and the counter is not loaded yet."""


def costs_by(counter: TokenCounter, *, stored_only: bool = False) -> Callable[[Message], int]:
    """Return a function from a message to its cost: the stored count, or a cached one.

    `stored_only` is for a counter that is not loaded yet: the function raises `NotCounted` for a message
    without a stored count.
    """
    storable = storable_counter(counter)
    name = storable.name

    def cost(message: Message) -> int:
        stored = message.tokens.get(name)
        if stored is not None:
            return stored
        if stored_only:
            raise NotCounted
        return _count_cached(storable, message, name)

    if isinstance(counter, Estimator) and counter.correction != 1.0:
        # Stored counts are uncorrected: the correction changes while the process learns.
        return lambda message: counter.corrected(cost(message))
    return cost


def count(counter: TokenCounter, message: Message) -> int:
    """Count a message now, ignoring stored and cached counts."""
    plain = plain_text(message)
    if plain is not None:
        return count_plain_text(counter, message.role, plain)
    return count_message(counter, message, meaning_of(message))


def characters_in(value: Any) -> int:
    """Return the approximate number of characters in a message or JSON value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Message):
        return characters_in(value.content) + (characters_in(value.extra) if value.extra else 0)
    if isinstance(value, list | tuple):
        return sum(map(characters_in, value))
    return sum(map(characters_in, value.values())) if isinstance(value, dict) else 1


def _count_cached(counter: TokenCounter, message: Message, name: str) -> int:
    key = _key(name, message)
    cached = None if key is None else _cache.get(key)
    if cached is None:
        cached = count(counter, message)
        if key is not None:
            _cache[key] = cached
    return cached


def _key(name: str, message: Message) -> Key | None:
    """Return a cache key of everything that affects the count; None if the message is not cacheable."""
    if not isinstance(message.content, str) and characters_in(message) > LARGEST_BLOCKS:
        return None
    # UNSET cannot be encoded; an empty tuple keeps it apart from None.
    content = () if message.content is msgspec.UNSET else (message.content,)
    try:
        counted = msgspec.json.encode((message.role, message.dialect, content, message.extra))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None  # the codec cannot encode it, for example an integer with many digits
    return name, blake2b(counted, digest_size=16).digest()
