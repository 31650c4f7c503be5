"""One owner's way through an outage: what is known plus what was accepted, until all of that is stored.

An owner has a lane from the first operation that is spooled until the last is in the store. As long
as it has, its writes queue up behind those that wait, so that nothing overtakes anything. One event
loop; no step of it waits between looking and deciding.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice

from aforesaid.layers.resilient.last_known_state import View
from aforesaid.layers.resilient.spool import Ref

PACE = 2
"""While the store takes the backlog in, one new operation is accepted for so many that were taken in: new
turns keep flowing, and the backlog shrinks however fast they come."""

LONGEST_WAIT = 0.25
"""Seconds that a new operation waits for its turn at most: a store that stalls again holds nobody up."""


class OwnerQueue:
    """The operations of one owner that the store does not have yet."""

    def __init__(self, owner: str, view: View) -> None:
        self.owner = owner
        self.view = view
        self._backlog: deque[Ref] = deque()
        self._stored: set[Ref] = set()
        self._busy = 0
        self.touched: set[str] = set()
        """Conversations that an accepted operation is about: what the store says of the others holds."""
        self.follow_loop()

    def follow_loop(self) -> None:
        """Take new locks and events: those of another event loop are of no use."""
        self.deciding = asyncio.Lock()
        """Held from looking at what is known to its change, where two callers must not both look first."""
        self.replaying = asyncio.Lock()
        self.drained = asyncio.Event()
        self._draining = False
        self._credit = 0
        self._moved = asyncio.Event()

    def leaves_alone(self, conversation_id: str | None) -> bool:
        """Whether no accepted operation is about this conversation."""
        return conversation_id is not None and conversation_id not in self.touched

    @property
    def empty(self) -> bool:
        """Whether nothing waits, and nobody is about to add something."""
        return not self._backlog and not self._busy

    @property
    def depth(self) -> int:
        return len(self._backlog) - len(self._stored)

    @property
    def oldest(self) -> datetime | None:
        """When the operation that waits longest was accepted."""
        return self._backlog[0].at if self._backlog else None

    @contextmanager
    def adding(self) -> Iterator[None]:
        """While somebody is about to add an operation, the lane stays."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._moved.set()

    def add(self, ref: Ref) -> None:
        self._backlog.append(ref)

    def add_earlier(self, refs: Sequence[Ref]) -> None:
        """Operations that another process accepted: each in its place by time."""
        self._backlog = deque(sorted((*refs, *self._backlog), key=_acceptance))

    def first(self, count: int) -> list[Ref]:
        """The operations that wait longest."""
        waiting = (ref for ref in self._backlog if ref not in self._stored)
        return list(islice(waiting, count))

    def stored(self, refs: Iterable[Ref]) -> None:
        """The store has these now, or they are gone."""
        before = len(self._stored)
        self._stored.update(refs)
        self._credit += len(self._stored) - before
        while self._backlog and self._backlog[0] in self._stored:
            self._stored.remove(self._backlog.popleft())
        self._moved.set()

    def drop(self, refs: Iterable[Ref]) -> None:
        """These are no longer to be stored."""
        gone = set(refs)
        self._backlog = deque(ref for ref in self._backlog if ref not in gone)
        self._moved.set()

    @contextmanager
    def draining(self) -> Iterator[None]:
        """While the store takes the backlog in, new operations keep to a pace."""
        self._draining = True
        try:
            yield
        finally:
            self._draining = False
            self._credit = 0
            self._moved.set()

    async def pace(self) -> None:
        """Wait for the turn of a new operation, while the backlog is being taken in."""
        if not self._draining:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                while self._draining and self._credit < PACE and not self.drained.is_set():
                    await self.moved()
        self._credit = max(0, self._credit - PACE)

    async def moved(self) -> None:
        """Until something has changed here."""
        self._moved.clear()
        await self._moved.wait()


def _acceptance(ref: Ref) -> datetime:
    assert ref.at is not None
    return ref.at
