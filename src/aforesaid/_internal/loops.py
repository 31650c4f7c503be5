"""Objects that belong to one event loop, recreated when another loop runs.

A program may use one memory with several `asyncio.run` calls. Locks, events and tasks are bound to the loop
that created or first awaited them, and do not work on another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from aforesaid._internal.deadlines import ended

T = TypeVar("T")


class PerLoop(Generic[T]):
    """A value for the running loop, one loop at a time. `make` runs on the loop."""

    __slots__ = ("_loop", "_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None

    def here(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._value = self._make()
            self._loop = loop
        return self._value


class LoopWatch:
    """Detects a change of the event loop."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_here(self) -> bool:
        """Whether the running loop is the followed one."""
        return asyncio.get_running_loop() is self._loop

    def follow(self) -> None:
        self._loop = asyncio.get_running_loop()

    def has_changed(self) -> bool:
        """Return whether the running loop is another one, and follow it."""
        if self.is_here:
            return False
        self.follow()
        return True


class Underway:
    """Counts calls in progress, and waits for the last of them."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()

    @contextmanager
    def one(self) -> Iterator[None]:
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._idle.set()

    async def finished(self) -> None:
        """Wait until no call is in progress."""
        while self._count:
            self._idle.clear()
            await self._idle.wait()


class LoopEnd:
    """Closes a resource of the running event loop when that loop ends.

    `asyncio.run` cancels running tasks before it closes the loop: the last opportunity to close connections
    in order. `close` handles its own errors. Call `release` when the resource is closed otherwise.
    """

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close: Callable[[], Awaitable[None]] | None = close
        self._task = asyncio.get_running_loop().create_task(self._wait(), name="aforesaid-loop-end")
        _waiting.add(self._task)
        self._task.add_done_callback(_waiting.discard)

    async def _wait(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if self._close is not None:
                await self._close()

    async def release(self) -> None:
        """Do not close the resource any more."""
        self._close = None
        await ended(self._task)

    async def trigger(self) -> None:
        """Close the resource now; on another loop, as soon as that loop runs."""
        await ended(self._task)


_waiting: "set[asyncio.Task[None]]" = set()
"""Strong references: an event loop does not keep a task alive that waits for nothing."""
