"""Back-pressure: at most so many at once; whoever comes after them waits, up to a deadline, and is then told.

Above: whatever has a queue. Without a bound a queue takes all memory when the disk or the server falls
behind, and the callers learn nothing. Below: errors.
"""

import asyncio
from weakref import WeakKeyDictionary

from recollect.errors import Overloaded


class Door:
    """Places for those who are being served. Each event loop has its own, for none can wait on another's."""

    def __init__(self, what: str, *, places: int, waiting: int, deadline: float) -> None:
        self._what = what
        self._places = places
        self._most_waiting = waiting
        self._deadline = deadline
        self._waiting = 0
        self._free: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def enter(self) -> asyncio.Semaphore:
        """Take a place; release it afterwards. Raises `Overloaded`."""
        loop = asyncio.get_running_loop()
        free = self._free.get(loop)
        if free is None:
            free = self._free[loop] = asyncio.Semaphore(self._places)
        if free.locked():
            await self._wait(free)
        else:
            await free.acquire()  # at once
        return free

    async def _wait(self, free: asyncio.Semaphore) -> None:
        if self._waiting >= self._most_waiting:
            raise Overloaded(f"{self._what}: {self._waiting:,} wait already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._deadline):
                await free.acquire()
        except TimeoutError:
            raise Overloaded(f"{self._what}: no place became free within {self._deadline:g} s") from None
        finally:
            self._waiting -= 1
