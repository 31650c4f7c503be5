"""Trying again: which errors pass by themselves, how often, and after what pause.

A few lines of our own rather than a package: the core stays light, and the tests hand in a sleeper
that does not sleep.
"""

import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from msgspec import Struct

from aforesaid.errors import (
    AforesaidError,
    Overloaded,
    SpoolFull,
    StoreBusy,
    StoreReplaced,
    StoreUnavailable,
)

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


def is_transient(error: AforesaidError) -> bool:
    """Whether the store may be well again in a moment. The one place that says which errors pass."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, SpoolFull)


def is_worth_repeating(error: AforesaidError) -> bool:
    """Whether to ask again at once. Asking again does not help an overloaded store, and the store has waited
    for a lock already."""
    return is_transient(error) and not isinstance(error, Overloaded | StoreBusy | StoreReplaced)


class Effort(Struct, frozen=True, kw_only=True):
    """How hard to try: so many attempts, so many seconds for all of them; None waits as long as it takes."""

    attempts: int = 3
    deadline: float | None = None
    first_pause: float = 0.05
    longest_pause: float = 1.0

    def pauses(self) -> Iterator[float]:
        """The pauses between attempts: each twice the last at most, and uneven, so that many do not meet."""
        ceiling = self.first_pause
        for _ in range(self.attempts - 1):
            yield random.uniform(ceiling / 2, ceiling)
            ceiling = min(ceiling * 2, self.longest_pause)


async def with_retries(
    call: Callable[[], Awaitable[T]],
    effort: Effort,
    *,
    sleep: Sleep,
    failed: Callable[[AforesaidError], None] = lambda error: None,
    again: Callable[[], None] = lambda: None,
) -> T:
    """What the call answers, asked again after errors that pass. `failed` hears of each such error."""
    pauses = effort.pauses()
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            if not is_transient(error):
                raise
            failed(error)
            pause = next(pauses, None)
            if pause is None or not is_worth_repeating(error):
                raise
        again()
        await sleep(pause)
