"""Retry calls after transient errors.

No dependency: the code is short, and tests pass a `sleep` that returns at once.
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
    """Whether the error may pass by itself."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, SpoolFull)


def is_retryable(error: AforesaidError) -> bool:
    """Whether an immediate retry may help. It does not help an overloaded store or a store that has already
    waited for a lock."""
    return is_transient(error) and not isinstance(error, Overloaded | StoreBusy | StoreReplaced)


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """The number of attempts, and the seconds for all of them; None sets no deadline."""

    attempts: int = 3
    deadline: float | None = None
    first_pause: float = 0.05
    longest_pause: float = 1.0

    def once(self) -> "RetryPolicy":
        """Return a policy with the same deadline and a single attempt."""
        return RetryPolicy(attempts=1, deadline=self.deadline)

    def pauses(self) -> Iterator[float]:
        """Yield the pauses between attempts: exponential, with jitter against simultaneous retries."""
        ceiling = self.first_pause
        for _ in range(self.attempts - 1):
            yield random.uniform(ceiling / 2, ceiling)
            ceiling = min(ceiling * 2, self.longest_pause)


async def with_retries(
    call: Callable[[], Awaitable[T]],
    retry: RetryPolicy,
    *,
    sleep: Sleep,
    on_failure: Callable[[AforesaidError], None] = lambda error: None,
    on_retry: Callable[[], None] = lambda: None,
) -> T:
    """Return the call's answer; retry after transient errors, and pass each of them to `on_failure`."""
    pauses = retry.pauses()
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            if not is_transient(error):
                raise
            on_failure(error)
            pause = next(pauses, None)
            if pause is None or not is_retryable(error):
                raise
        on_retry()
        await sleep(pause)
