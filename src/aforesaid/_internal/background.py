"""Work that nobody waits for, begun after a moment of quiet. Below: deadlines. Above: whoever keeps notes.

A turn leaves a note of what there is to do, and goes on; a task works through the notes later, until there
are none. `Background` is that task: when it begins, who waits for it after all, and how it ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aforesaid._internal.deadlines import ended

Work = Callable[[], Awaitable[None]]
Moment = Callable[[], float]


class Background:
    """A task that is begun again and again. `work` goes on until nothing is left; `has_work` says whether
    there is anything. One event loop at a time: what an earlier one left behind will never come to an end."""

    def __init__(self, work: Work, has_work: Callable[[], bool], *, name: str) -> None:
        self._work = work
        self._has_work = has_work
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._awaited = asyncio.Event()
        """Set while somebody waits for the end."""
        self.is_closed = False

    def here(self) -> asyncio.AbstractEventLoop:
        """The loop of the caller, on which it runs from now on."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._timer, self._task = loop, None, None
            self._awaited = asyncio.Event()
        return loop

    @property
    def is_idle(self) -> bool:
        """Whether it neither runs nor is about to."""
        return self._timer is None and self._task is None

    def begin_at(self, moment: Moment) -> None:
        """Begin at the moment that this gives, in seconds of the loop. It is asked again when the moment has
        come, which may have been put off."""
        loop, at = self.here(), moment()
        if at > loop.time():
            self._timer = loop.call_at(at, self.begin_at, moment)
        else:
            self._begin()

    async def done(self) -> None:
        """Wait until nothing is left to do, or it is closed; begin at once."""
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
        """For the work itself: do nothing for so long, unless somebody waits for its end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._awaited.wait(), seconds)

    async def close(self) -> None:
        """End what runs, and begin nothing more."""
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
