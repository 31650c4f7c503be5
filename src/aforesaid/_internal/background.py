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

    One task both pauses and works. A timer that creates the task later may fire while `asyncio.run` closes
    the loop, after it has cancelled all tasks: such a task would never start.
    """

    def __init__(self, work: Work, has_work: Callable[[], bool], *, name: str) -> None:
        self._work = work
        self._has_work = has_work
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._awaited = asyncio.Event()
        """Set while a caller of `done` waits."""
        self.is_closed = False

    def here(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, and bind the task to it."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._task = loop, None
            self._awaited = asyncio.Event()
        return loop

    @property
    def is_idle(self) -> bool:
        """Whether it neither works nor waits for its start."""
        # A task that is cancelled before its first step ends without running `_run`.
        return self._task is None or self._task.done()

    def begin_at(self, moment: Moment) -> None:
        """Start at the loop time that `moment` returns. It is called again at that time, which may have been
        postponed.
        """
        loop = self.here()
        if self.is_idle and not self.is_closed:
            self._task = loop.create_task(self._run(moment), name=self._name)

    async def done(self) -> None:
        """Start at once and wait until nothing is left, or until closed."""
        loop = self.here()
        self._awaited.set()
        try:
            while not self.is_closed and (self._has_work() or not self.is_idle):
                self.begin_at(loop.time)
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
        if self._task is not None:
            await ended(self._task)

    async def _run(self, moment: Moment) -> None:
        own = asyncio.current_task()  # read now: the garbage collector may end this coroutine without a loop
        try:
            await self._wait_for(moment)
            await self._work()
        finally:
            # In the same step as the last check for work: whatever is queued next starts a new task. The task
            # of an abandoned loop must not hide its successor.
            if self._task is own:
                self._task = None

    async def _wait_for(self, moment: Moment) -> None:
        now = asyncio.get_running_loop().time
        while (seconds := moment() - now()) > 0 and not self._awaited.is_set():
            await self.rest(seconds)
