"""A cache with one value per owner, bounded by total size and idle time.

Every value is a copy that can be rebuilt.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

IDLE = 900.0
"""Seconds after which an unused value is evicted. Reloading a hundred thousand vectors takes a second."""


class Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sized)


class OwnerCache(Generic[S]):
    """One value per owner; evicts the least recently used when the total size is too large, and idle ones."""

    def __init__(
        self,
        make: Callable[[], S],
        *,
        max_size: int,
        idle: float = IDLE,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._make = make
        self._max_size = max_size
        self._idle = idle
        self._now = now
        self._values: OrderedDict[str, S] = OrderedDict()
        self._used_at: dict[str, float] = {}
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def __len__(self) -> int:
        return len(self._values)

    def get(self, owner: str) -> S | None:
        """Return the value without marking it as used, or None."""
        return self._values.get(owner)

    def of(self, owner: str) -> S:
        """Return the owner's value, created if necessary, and evict others until the total size fits."""
        if owner not in self._values:
            self._values[owner] = self._make()
        self._values.move_to_end(owner)
        self._used_at[owner] = self._now()
        while len(self._values) > 1 and sum(one.size for one in self._values.values()) > self._max_size:
            self.pop(next(iter(self._values)))
        self._schedule_eviction()
        return self._values[owner]

    def pop(self, owner: str) -> S | None:
        self._used_at.pop(owner, None)
        return self._values.pop(owner, None)

    def clear(self) -> None:
        self._values.clear()
        self._used_at.clear()
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None

    def evict_idle(self) -> None:
        """Remove every value that has not been used within the idle time."""
        since = self._now() - self._idle
        for owner in [owner for owner, used in self._used_at.items() if used <= since]:
            self.pop(owner)

    def _schedule_eviction(self) -> None:
        """Start one timer for all values, if none is running on this event loop."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer[0] is not loop:
            self._timer = (loop, loop.call_later(self._idle, self._on_timer))

    def _on_timer(self) -> None:
        self._timer = None
        self.evict_idle()
        if self._values:
            self._schedule_eviction()
