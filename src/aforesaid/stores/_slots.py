"""Back-pressure: admit at most N callers; others wait until a deadline, then get `Overloaded`.

An unbounded queue uses up all memory when the disk or the server is slow.
"""

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

from aforesaid.errors import Overloaded


class Slots:
    """A limit on concurrent callers. Each event loop has slots of its own, because a future belongs to one
    loop."""

    def __init__(self, name: str, *, limit: int, max_waiting: int, timeout: float) -> None:
        self._name = name
        self._limit = limit
        self._max_waiting = max_waiting
        self._timeout = timeout
        self._waiting = 0
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopSlots] = WeakKeyDictionary()

    async def enter(self) -> "LoopSlots":
        """Take a slot; the caller releases it. Raise `Overloaded`."""
        slots = self.of_loop(asyncio.get_running_loop())
        if not slots.take():
            await self.wait(slots)
        return slots

    def of_loop(self, loop: asyncio.AbstractEventLoop) -> "LoopSlots":
        """Return the slots of a loop."""
        slots = self._loops.get(loop)
        if slots is None:
            slots = self._loops[loop] = LoopSlots(self._limit)
        return slots

    async def wait(self, slots: "LoopSlots") -> None:
        """Wait until a slot is free. Raise `Overloaded`."""
        if self._waiting >= self._max_waiting:
            raise Overloaded(f"{self._name}: {self._waiting:,} callers are waiting already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._timeout):
                await slots.next_slot()
        except TimeoutError:
            raise Overloaded(f"{self._name}: no slot became free within {self._timeout:g} s") from None
        finally:
            self._waiting -= 1


class LoopSlots:
    """The slots of one event loop, assigned in order of arrival. Every turn takes one, so taking a free
    slot does not wait."""

    __slots__ = ("__weakref__", "_free", "_queue")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._queue: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a slot if one is free, and return whether it was. No slot is free while callers wait."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def next_slot(self) -> None:
        """Wait in the queue until `release` assigns a slot."""
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():
                self.release()  # the slot was assigned at the moment of cancellation: pass it on
            raise

    def release(self) -> None:
        """Assign the slot to the first waiting caller, or make it free."""
        while self._queue:
            slot = self._queue.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1
