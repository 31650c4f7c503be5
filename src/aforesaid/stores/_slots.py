"""Back-pressure: at most so many at once; whoever comes after them waits, up to a deadline, and is then told.

Above: whatever has a queue. Without a bound a queue takes all memory when the disk or the server falls
behind, and the callers learn nothing. Below: errors.
"""

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

from aforesaid.errors import Overloaded


class Slots:
    """Places for those who are being served. Each event loop has its own, for none can wait on another's."""

    def __init__(self, what: str, *, places: int, waiting: int, deadline: float) -> None:
        self._what = what
        self._slots = places
        self._most_waiting = waiting
        self._deadline = deadline
        self._waiting = 0
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopSlots] = WeakKeyDictionary()

    async def enter(self) -> "LoopSlots":
        """Take a place; release it afterwards. Raises `Overloaded`."""
        room = self.room(asyncio.get_running_loop())
        if not room.take():
            await self.wait(room)
        return room

    def room(self, loop: asyncio.AbstractEventLoop) -> "LoopSlots":
        """The places of a loop."""
        room = self._loops.get(loop)
        if room is None:
            room = self._loops[loop] = LoopSlots(self._slots)
        return room

    async def wait(self, room: "LoopSlots") -> None:
        """Wait for a place where none was free."""
        if self._waiting >= self._most_waiting:
            raise Overloaded(f"{self._what}: {self._waiting:,} wait already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._deadline):
                await room.next_place()
        except TimeoutError:
            raise Overloaded(f"{self._what}: no place became free within {self._deadline:g} s") from None
        finally:
            self._waiting -= 1


class LoopSlots:
    """The places of one event loop, given to whoever came first. Taking a free one waits for nothing and
    costs next to nothing: every turn does it."""

    __slots__ = ("__weakref__", "_free", "_queue")

    def __init__(self, places: int) -> None:
        self._free = places
        self._queue: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a place if one is free; whether it was. While somebody waits, none is."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def next_place(self) -> None:
        """Wait in the queue until a place is handed over."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.release()  # it was handed over in the same moment: to the next one, then
            raise

    def release(self) -> None:
        """Give a place back: to the first who still waits, or to whoever comes."""
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
