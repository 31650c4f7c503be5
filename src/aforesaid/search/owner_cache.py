"""A cache with one value per owner, bounded by total size and idle time.

Every value is a copy that can be rebuilt.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

from aforesaid._internal.bounded import BoundedDict

IDLE = 900.0
"""Seconds after which an unused value is evicted. Reloading a hundred thousand vectors takes a second."""


class Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sized)


class _Entry(Generic[S]):
    def __init__(self, value: S, used_at: float) -> None:
        self.value = value
        self.used_at = used_at


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
        self._idle = idle
        self._now = now
        self._entries: BoundedDict[str, _Entry[S]] = BoundedDict(
            max_size, size=lambda entry: entry.value.size
        )
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def owners(self) -> list[str]:
        """Return the owners with a value."""
        return list(self._entries)

    def get(self, owner: str) -> S | None:
        """Return the value without marking it as used, or None."""
        entry = self._entries.get(owner)
        return None if entry is None else entry.value

    def of(self, owner: str) -> S:
        """Return the owner's value, created if necessary, and evict others until the total size fits."""
        entry = self._entries.use(owner)
        if entry is None:
            entry = self._entries[owner] = _Entry(self._make(), 0.0)
        entry.used_at = self._now()
        self._entries.remeasure()  # values grow after they are cached
        self._schedule_eviction()
        return entry.value

    def pop(self, owner: str) -> S | None:
        entry = self._entries.pop(owner, None)
        return None if entry is None else entry.value

    def clear(self) -> None:
        self._entries.clear()
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None

    def evict_idle(self) -> None:
        """Remove every value that has not been used within the idle time."""
        since = self._now() - self._idle
        for owner in [owner for owner, entry in self._entries.items() if entry.used_at <= since]:
            self.pop(owner)

    def _schedule_eviction(self) -> None:
        """Start one timer for all values, if none is running on this event loop."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer[0] is not loop:
            self._timer = (loop, loop.call_later(self._idle, self._on_timer))

    def _on_timer(self) -> None:
        self._timer = None
        self.evict_idle()
        if self._entries:
            self._schedule_eviction()
