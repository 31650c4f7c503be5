"""What is held in memory of each owner, within bounds of size and of time. Below: nothing. Above: the room.

Everything held is a copy, and is made anew when it is needed again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

IDLE = 900.0
"""Seconds after which what nobody asked for is let go: to read a hundred thousand vectors takes a second."""


class Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sized)


class Held(Generic[S]):
    """One thing for each owner. What was asked for longest ago goes first: when it is too much, or idle."""

    def __init__(
        self, make: Callable[[], S], *, most: int, idle: float = IDLE, now: Callable[[], float] = monotonic
    ) -> None:
        self._make = make
        self._most = most
        self._idle = idle
        self._now = now
        self._held: OrderedDict[str, S] = OrderedDict()
        self._used: dict[str, float] = {}
        self._watch: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def __len__(self) -> int:
        return len(self._held)

    def get(self, owner: str) -> S | None:
        """What is held, if anything. Only to be told something: that is no use of it."""
        return self._held.get(owner)

    def of(self, owner: str) -> S:
        """The owner's, used now. Others go until what is held fits; the owner's own always stays."""
        if owner not in self._held:
            self._held[owner] = self._make()
        self._held.move_to_end(owner)
        self._used[owner] = self._now()
        while len(self._held) > 1 and sum(one.size for one in self._held.values()) > self._most:
            self.pop(next(iter(self._held)))
        self._look_later()
        return self._held[owner]

    def pop(self, owner: str) -> S | None:
        self._used.pop(owner, None)
        return self._held.pop(owner, None)

    def clear(self) -> None:
        self._held.clear()
        self._used.clear()
        if self._watch is not None:
            self._watch[1].cancel()
            self._watch = None

    def let_go(self) -> None:
        """Of all that nobody asked for lately."""
        since = self._now() - self._idle
        for owner in [owner for owner, used in self._used.items() if used <= since]:
            self.pop(owner)

    def _look_later(self) -> None:
        """When something may have become idle: one timer for all that is held."""
        loop = asyncio.get_running_loop()
        if self._watch is None or self._watch[0] is not loop:
            self._watch = (loop, loop.call_later(self._idle, self._look))

    def _look(self) -> None:
        self._watch = None
        self.let_go()
        if self._held:
            self._look_later()
