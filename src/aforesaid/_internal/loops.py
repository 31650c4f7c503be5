"""Objects that belong to one event loop, made anew when another loop runs.

A program may use one memory with one `asyncio.run` after the other. Locks, events and tasks are bound to the
loop that they were made or first waited on, and are of no use on the next.
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
        """The value of the running loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._value = self._make()
            self._loop = loop
        return self._value


class LoopWatch:
    """Notices that another event loop runs than the one that was followed last."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_here(self) -> bool:
        """Whether the running loop is the one that was followed last."""
        return asyncio.get_running_loop() is self._loop

    def follow(self) -> None:
        self._loop = asyncio.get_running_loop()

    def has_changed(self) -> bool:
        """Whether the running loop is another one; follow it."""
        if self.is_here:
            return False
        self.follow()
        return True


class Underway:
    """Counts calls that are under way, and waits for the last of them."""

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
        """Wait until nothing is under way."""
        while self._count:
            self._idle.clear()
            await self._idle.wait()


class LoopEnd:
    """Closes something that is bound to the running event loop when that loop ends.

    `asyncio.run` cancels what still runs before it closes the loop: the last moment at which connections can
    be closed in order. `close` handles its own errors. Call `release` when it is closed otherwise.
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
        """Close nothing any more."""
        self._close = None
        await ended(self._task)


_waiting: "set[asyncio.Task[None]]" = set()
"""An event loop alone does not keep a task alive that waits for nothing."""
