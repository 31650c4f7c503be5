"""A background task that starts after a pause and works until nothing is left.

A turn queues work and continues; the task processes the queue later.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aforesaid._internal.deadlines import ended

Work = Callable[[], Awaitable[None]]
Moment = Callable[[], float]


class Background:
    """A restartable task. `work` runs until nothing is left; `has_work` returns whether there is any. It
    belongs to one event loop at a time; a task of an earlier loop is abandoned, because it never ends.
    """

    def __init__(self, work: Work, has_work: Callable[[], bool], *, name: str) -> None:
        self._work = work
        self._has_work = has_work
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._awaited = asyncio.Event()
        """Set while a caller of `done` waits."""
        self.is_closed = False

    def here(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, and bind the task to it."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._timer, self._task = loop, None, None
            self._awaited = asyncio.Event()
        return loop

    @property
    def is_idle(self) -> bool:
        """Whether it neither runs nor is scheduled."""
        return self._timer is None and self._task is None

    def begin_at(self, moment: Moment) -> None:
        """Start at the loop time that `moment` returns. It is called again at that time, which may have been
        postponed.
        """
        loop, at = self.here(), moment()
        if at > loop.time():
            self._timer = loop.call_at(at, self.begin_at, moment)
        else:
            self._begin()

    async def done(self) -> None:
        """Start at once and wait until nothing is left, or until closed."""
        self.here()
        self._awaited.set()
        try:
            while not self.is_closed and (self._has_work() or self._task is not None):
                if self._timer is not None:
                    self._timer.cancel()
                self._begin()
                if self._task is not None:
                    await asyncio.wait([self._task])
        finally:
            self._awaited.clear()

    async def rest(self, seconds: float) -> None:
        """Pause the work, unless a caller of `done` waits. To be called by `work`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._awaited.wait(), seconds)

    async def close(self) -> None:
        """Cancel the task, and start no more."""
        self.is_closed = True
        self.here()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await ended(self._task)

    def _begin(self) -> None:
        self._timer = None
        if self._task is None and not self.is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    async def _run(self) -> None:
        try:
            await self._work()
        finally:
            self._task = None
